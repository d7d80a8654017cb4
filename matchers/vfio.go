package matchers

import (
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

// vfioGroup is the IOMMU group whose number hardware has if VFIO gives it to
// programs, "" for all else. A mediated device in a group always is:
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
	return device.CompareNumber(a.PCI.Address, b.PCI.Address)
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

// vfioNodes lists the VFIO nodes of a function: that of its group, which may
// belong to another function of it, and its own.
func (ix *index) vfioNodes(h *device.Hardware) []*device.Node {
	var nodes []*device.Node
	for _, f := range ix.byGroup()[h.IOMMUGroup()] {
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
	for _, h := range s.ix.snap.Hardware {
		if vfioGroup(h) == "" || !p.hardwareHolds(h) || !p.sysHolds([]string{h.Path}) {
			continue
		}
		selects := false
		for _, n := range s.ix.vfioNodes(h) {
			excluded := slices.ContainsFunc(s.excludes, func(e *predicate) bool { return e.holdsOf(n, h) })
			if !excluded && (p.Subsystem.Empty() || p.Subsystem.Match(n.Subsystem)) {
				s.pick(n, p.Match)
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
		for _, h := range s.ix.byGroup()[g.number] {
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
			p.hardware = g.hardware
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
	if h.PCI == nil || h.PCI.IsBridge() || slices.ContainsFunc(s.excludes, func(e *predicate) bool { return !e.readsDriver() && e.holdsWhole(h) }) {
		return false
	}
	return slices.ContainsFunc(s.matches, func(p *predicate) bool { return p.VFIO && p.holdsBound(h) })
}

// readsDriver reports whether a match depends on what a function is bound to.
func (p *predicate) readsDriver() bool { return !p.PCI["driver"].Empty() || !p.Driver.Empty() }

// holdsBound is hardwareHolds without regard to the driver.
func (p *predicate) holdsBound(h *device.Hardware) bool {
	bound := *p
	bound.hardware = slices.DeleteFunc(slices.Clone(p.hardware), func(c condition) bool { return c.attribute.Name() == "pci.driver" })
	return p.MDev == nil && bound.tablesHold(h) && p.attrsHold([]string{h.Path})
}

// addVFIO adds what opens the way to the nodes of groups, with their
// permissions, and says what is in the way of that.
func (b *builder) addVFIO() {
	var ofGroup, ofFunctions bool
	along := &config.Companion{}
	for _, p := range b.c.picks {
		if !isGroupNode(p.node) && !isFunctionNode(p.node) {
			continue
		}
		ofGroup = ofGroup || isGroupNode(p.node)
		ofFunctions = ofFunctions || isFunctionNode(p.node)
		along.Permissions = unitePermissions(along.Permissions, b.permissions(p))
	}
	container, iommu := b.at(vfioContainer), b.at(iommufd)
	if ofGroup && container != nil {
		b.companionNode(along, container)
	}
	// A group takes the one or the other (VFIO_GROUP_SET_CONTAINER).
	if iommu != nil && (ofFunctions || container == nil) {
		b.companionNode(along, iommu)
	}
	switch {
	case ofGroup && container == nil && iommu == nil:
		b.problem("%s is missing: is the module vfio loaded?", vfioContainer)
	case !ofGroup && ofFunctions && iommu == nil:
		b.problem("%s is missing: is the module iommufd loaded?", iommufd)
	}
	for _, g := range b.c.groups {
		var bound []string
		for _, h := range b.byGroup()[g.number] {
			if h.PCI != nil && holdsGroup(h.PCI) {
				bound = append(bound, h.Name+" to "+h.PCI.Driver)
			}
		}
		if len(bound) > 0 {
			b.problem("IOMMU group %s is not viable: functions are bound to drivers of the host: %s", g.number, strings.Join(bound, ", "))
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
func (m *run) vfioNotes(r *config.Resource, found []candidate) {
	excludes := m.predicates(r.Exclude)
	for _, p := range m.predicates(r.Match) {
		if !p.VFIO {
			continue
		}
		var unbound []string
		for _, h := range m.snap.Hardware {
			if h.PCI != nil && !h.PCI.VFIO && !h.PCI.IsBridge() && p.hardwareHolds(h) && p.sysHolds([]string{h.Path}) &&
				!slices.ContainsFunc(excludes, func(e *predicate) bool { return e.holdsWhole(h) }) {
				unbound = append(unbound, h.Name)
			}
		}
		if len(unbound) > 0 {
			slices.SortFunc(unbound, device.CompareNumber)
			m.note(p.Place, `driver = "vfio-pci" in pci says that only those are meant which are`,
				"no VFIO nodes, since not bound to vfio-pci: PCI function %s", andMore(unbound[0], len(unbound)))
		}
	}
	if !r.Container.CDI && slices.ContainsFunc(found, func(c candidate) bool { return len(c.groups) > 0 }) {
		m.note(r.Place, "container.cdi = true", "vfio without container.cdi: after a reboot a container may find the nodes of VFIO under numbers that are no longer theirs")
	}
}
