package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// The nodes that open the way to the nodes of VFIO: the container of groups
// (vfio_container_init in drivers/vfio/container.c) and what binds the nodes of
// functions (drivers/iommu/iommufd/main.c).
const (
	vfioContainer = "/dev/vfio/vfio"
	iommufd       = "/dev/iommu"
)

// isGroupNode reports whether n is the node of an IOMMU group, "/dev/vfio/12",
// and isFunctionNode whether it is that of one function of VFIO,
// "/dev/vfio/devices/vfio3".
func isGroupNode(n *device.Node) bool    { return n.Subsystem == "vfio" }
func isFunctionNode(n *device.Node) bool { return n.Subsystem == "vfio-dev" }

// vfioGroup is the IOMMU group whose number hardware has if it is handed to
// programs by VFIO, "" for all else. A mediated device in a group always is:
// no other driver puts one there (vfio_mdev and its likes).
func vfioGroup(h *device.Hardware) string {
	if h == nil || h.PCI != nil && !h.PCI.VFIO {
		return ""
	}
	return h.IOMMUGroup()
}

// compareFunctions orders functions by address. A mediated device is in a
// group of its own.
func compareFunctions(a, b *device.Hardware) int {
	if a.PCI == nil || b.PCI == nil {
		return strings.Compare(a.Path, b.Path)
	}
	return device.CompareAddress(a.PCI.Address, b.PCI.Address)
}

// group is what a resource selects of an IOMMU group with vfio = true: one
// device, whatever it selects of the group otherwise.
type group struct {
	number string
	// functions that are selected, by address.
	functions []*device.Hardware
	// hardware is the selected function with the lowest address, whose ID the
	// device has. It may be one that is not bound to VFIO yet: in which order
	// functions are bound is no reason for another ID.
	hardware *device.Hardware
}

// ofGroup lists the functions of an IOMMU group by address, or its mediated
// device.
func (ix *index) ofGroup(number string) []*device.Hardware {
	if ix.groups == nil {
		ix.groups = map[string][]*device.Hardware{}
		for _, h := range slices.Concat(ix.bus[device.PCIBus], ix.bus[device.MDevBus]) {
			if g := h.IOMMUGroup(); g != "" {
				ix.groups[g] = append(ix.groups[g], h)
			}
		}
		for _, list := range ix.groups {
			slices.SortFunc(list, compareFunctions)
		}
	}
	return ix.groups[number]
}

// vfioNodes lists the VFIO nodes of a function: that of its group, which may
// belong to another function of it, and its own.
func (ix *index) vfioNodes(h *device.Hardware) []*device.Node {
	var nodes []*device.Node
	for _, f := range ix.ofGroup(h.IOMMUGroup()) {
		for _, n := range f.Nodes {
			if isGroupNode(n) || f == h && isFunctionNode(n) {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}

// addVFIO selects what a match with vfio = true does. What is excluded is
// decided here, since the node of a group goes with each of its functions.
func (s *selection) addVFIO(p *predicate) {
	for _, h := range s.ix.candidates(p.match) {
		if vfioGroup(h) == "" || !p.hardwareHolds(h) || !p.asksNothing() && !p.sysHolds(s.ix, []string{h.Path}) {
			continue
		}
		selects := false
		for _, n := range s.ix.vfioNodes(h) {
			excluded := slices.ContainsFunc(s.excludes, func(e *predicate) bool { return e.holdsOf(s.ix, n, h) })
			if !excluded && (p.match.Subsystem.Empty() || p.match.Subsystem.Match(n.Subsystem)) {
				s.pick(n, p.match)
				selects = true
			}
		}
		if !selects {
			continue
		}
		g := s.groups[h.IOMMUGroup()]
		if g == nil {
			g = &group{number: h.IOMMUGroup()}
			s.groups[g.number] = g
		}
		if !slices.Contains(g.functions, h) {
			g.functions = append(g.functions, h)
		}
	}
}

// unite makes one device of each group.
func (s *selection) unite() {
	for _, g := range s.groups {
		slices.SortFunc(g.functions, compareFunctions)
		g.hardware = g.functions[0]
		for _, h := range s.ix.ofGroup(g.number) {
			if h == g.hardware || s.wouldSelect(h) {
				g.hardware = h
				break
			}
		}
		for _, h := range g.functions {
			delete(s.whole, h)
		}
	}
	for i := range s.picks {
		p := &s.picks[i]
		g := s.groups[vfioGroup(p.hardware)]
		if g != nil && (isGroupNode(p.node) || slices.Contains(g.functions, p.hardware)) {
			p.hardware, p.rank = g.hardware, s.ix.rank[g.hardware]
		}
	}
}

// groupOf returns the group whose device has the ID of h, if there is one.
func (s *selection) groupOf(h *device.Hardware) []*group {
	if g := s.groups[h.IOMMUGroup()]; g != nil && g.hardware == h {
		return []*group{g}
	}
	return nil
}

// wouldSelect reports whether a match with vfio = true selects a function once
// it is bound to VFIO.
func (s *selection) wouldSelect(h *device.Hardware) bool {
	if h.PCI == nil || h.PCI.IsBridge() || slices.ContainsFunc(s.excludes, func(e *predicate) bool { return !e.asksDriver() && e.wholeHolds(s.ix, h) }) {
		return false
	}
	return slices.ContainsFunc(s.matches, func(p *predicate) bool { return p.match.VFIO && p.holdsBound(s.ix, h) })
}

// asksDriver reports whether a match depends on what a function is bound to.
func (p *predicate) asksDriver() bool {
	return !p.match.PCI["driver"].Empty() || !p.match.Driver.Empty()
}

// holdsBound is hardwareHolds without regard to the driver.
func (p *predicate) holdsBound(ix *index, h *device.Hardware) bool {
	if p.match.MDev != nil {
		return false
	}
	conditions := slices.DeleteFunc(slices.Clone(p.pci), func(c condition) bool { return c.attribute.Key == "driver" })
	return p.pciHolds(conditions, h) && p.attrsHold(ix, []string{h.Path})
}

// addVFIO adds what opens the way to the nodes of groups, with their
// permissions, and says what is in the way of that.
func (o *offering) addVFIO() {
	var ofGroup, ofFunctions bool
	along := &config.Companion{}
	for _, p := range o.s.picks {
		if !isGroupNode(p.node) && !isFunctionNode(p.node) {
			continue
		}
		ofGroup = ofGroup || isGroupNode(p.node)
		ofFunctions = ofFunctions || isFunctionNode(p.node)
		along.Permissions = unitePermissions(along.Permissions, o.permissions(p))
	}
	container, iommu := o.ix.at(vfioContainer), o.ix.at(iommufd)
	if ofGroup && container != nil {
		o.companionNode(along, container)
	}
	// A group takes the one or the other (VFIO_GROUP_SET_CONTAINER).
	if iommu != nil && (ofFunctions || container == nil) {
		o.companionNode(along, iommu)
	}
	switch {
	case ofGroup && container == nil && iommu == nil:
		o.problem("%s is missing: is the module vfio loaded?", vfioContainer)
	case !ofGroup && ofFunctions && iommu == nil:
		o.problem("%s is missing: is the module iommufd loaded?", iommufd)
	}
	for _, g := range o.s.groups {
		var bound []string
		for _, h := range o.ix.ofGroup(g.number) {
			if h.PCI != nil && holdsGroup(h.PCI) {
				bound = append(bound, h.Name+" to "+h.PCI.Driver)
			}
		}
		if len(bound) > 0 {
			o.problem("IOMMU group %s is not viable: functions are bound to drivers of the host: %s", g.number, strings.Join(bound, ", "))
		}
	}
}

// unitePermissions are those of a and those of b, in the order of "rwm".
func unitePermissions(a, b string) string {
	return strings.Map(func(p rune) rune {
		if strings.ContainsRune(a+b, p) {
			return p
		}
		return -1
	}, "rwm")
}

// holdsGroup reports whether a function keeps its IOMMU group from being used
// through VFIO: it is bound to a driver that does DMA by itself
// (iommu_group_claim_dma_owner in drivers/iommu/iommu.c). Drivers that leave
// that alone are those of VFIO, of PCI ports and pci-stub; up to Linux 5.18 all
// drivers of bridges counted as such.
func holdsGroup(p *device.PCI) bool {
	switch p.Driver {
	case "", "pci-stub", "pcieport":
		return false
	}
	return !p.VFIO && !p.IsBridge()
}

// vfioNotes says what an administrator should know of a resource's matches
// with vfio = true on this host.
func (ix *index) vfioNotes(r *config.Resource, found []selected) []Note {
	var notes []Note
	excludes := ix.predicates(r.Exclude)
	for _, p := range ix.predicates(r.Match) {
		if !p.match.VFIO {
			continue
		}
		var unbound []string
		for _, h := range ix.candidates(p.match) {
			if p.hardwareHolds(h) && h.PCI != nil && !h.PCI.VFIO && !h.PCI.IsBridge() && (p.asksNothing() || p.sysHolds(ix, []string{h.Path})) &&
				!slices.ContainsFunc(excludes, func(e *predicate) bool { return e.wholeHolds(ix, h) }) {
				unbound = append(unbound, h.Name)
			}
		}
		slices.SortFunc(unbound, device.CompareAddress)
		if len(unbound) > 0 {
			text := "PCI function " + unbound[0]
			if more := len(unbound) - 1; more > 0 {
				text = fmt.Sprintf("%s and %d more", text, more)
			}
			notes = append(notes, Note{
				Place: p.match.Place,
				Text:  "no VFIO nodes, since not bound to vfio-pci: " + text,
				Hint:  `driver = "vfio-pci" in pci says that only those are meant which are`,
			})
		}
	}
	if !r.Container.CDI && slices.ContainsFunc(found, func(s selected) bool { return len(s.groups) > 0 }) {
		notes = append(notes, Note{
			Place: r.Place,
			Text:  "vfio without container.cdi: after a reboot a container may find the nodes of VFIO under numbers that are no longer theirs",
			Hint:  "container.cdi = true",
		})
	}
	return notes
}
