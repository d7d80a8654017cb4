package matchers

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// The nodes through which VFIO is used: the container of groups
// (vfio_container_init in drivers/vfio/container.c), and iommufd for the nodes of
// functions (drivers/iommu/iommufd/main.c).
const (
	vfioContainer = "/dev/vfio/vfio"
	iommufd       = "/dev/iommu"
)

// isGroupNode reports whether n is the node of an IOMMU group, "/dev/vfio/12".
func isGroupNode(n *device.Node) bool { return n.Subsystem == "vfio" }

// isFunctionNode reports whether n is the node of one function, "/dev/vfio/devices/vfio3".
func isFunctionNode(n *device.Node) bool { return n.Subsystem == "vfio-dev" }

// isVFIONode reports whether n is the node of an IOMMU group or of one function.
func isVFIONode(n *device.Node) bool { return isGroupNode(n) || isFunctionNode(n) }

// vfioGroup returns the IOMMU group of hardware that is bound to VFIO, or an empty string for other
// hardware. A mediated device in a group is always bound: only VFIO drivers add it to a group.
func vfioGroup(h *device.Hardware) string {
	if h == nil || h.PCI != nil && !h.PCI.VFIO {
		return ""
	}
	return h.IOMMUGroup()
}

// compareFunctions orders the hardware of an IOMMU group by address. A mediated device
// has its own group.
func compareFunctions(a, b *device.Hardware) int {
	if a.PCI == nil || b.PCI == nil {
		return strings.Compare(a.Path, b.Path)
	}
	return device.CompareNumber(a.PCI.Address, b.PCI.Address)
}

// vfioNodes lists the VFIO nodes of a function: the node of its group, which another function may
// own, and its own node.
func (m *run) vfioNodes(h *device.Hardware) []*device.Node {
	var nodes []*device.Node
	for _, f := range m.byGroup[h.IOMMUGroup()] {
		for _, n := range f.Nodes {
			if isGroupNode(n) || f == h && isFunctionNode(n) {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}

// unite makes one device of the functions of each group that matches with vfio = true select.
func (s *selection) unite() {
	for _, p := range s.picks {
		number := vfioGroup(p.hardware)
		if p.match.VFIO && !slices.Contains(s.groups[number], p.hardware) {
			s.groups[number] = append(s.groups[number], p.hardware)
		}
	}
	for number, functions := range s.groups {
		slices.SortFunc(functions, compareFunctions)
		// The functions of the group are sorted, too, so that the first one that is selected, now or when it
		// is bound, has the ID.
		i := slices.IndexFunc(s.byGroup[number], func(h *device.Hardware) bool {
			return h == functions[0] || s.wouldSelect(h)
		})
		s.heads[number] = s.byGroup[number][i]
	}
	// A function of the group that is not bound yet is a part of its device, and not a device by itself.
	s.picks = slices.DeleteFunc(s.picks, func(p pick) bool {
		return p.node == nil && s.isHead(p.hardware)
	})
	for i := range s.picks {
		p := &s.picks[i]
		number := vfioGroup(p.hardware)
		head := s.heads[number]
		if head == nil || p.node == nil {
			continue
		}
		// Picks with the same hardware become one device, see devices.
		if isGroupNode(p.node) || slices.Contains(s.groups[number], p.hardware) {
			p.hardware = head
		}
	}
}

// isHead reports whether the device of an IOMMU group has the ID of hardware.
func (s *selection) isHead(h *device.Hardware) bool { return s.heads[h.IOMMUGroup()] == h }

// wouldSelect reports whether a match with vfio = true selects a function when it is bound to
// VFIO.
func (s *selection) wouldSelect(h *device.Hardware) bool {
	// vfio-pci only binds to functions with a normal header (vfio_pci_core_register_device in
	// drivers/vfio/pci/vfio_pci_core.c).
	if h.PCI == nil || h.PCI.IsBridge() {
		return false
	}
	whole := target{hardware: h}
	isExcluded := slices.ContainsFunc(s.excludes, func(e *predicate) bool {
		return e.Driver.Empty() && e.matches(whole)
	})
	return !isExcluded && slices.ContainsFunc(s.matches, func(p *predicate) bool {
		return p.VFIO && !p.mdev && p.without("driver", "vfio").matches(whole)
	})
}

// addVFIOContainer adds the VFIO container or iommufd, with the permissions of the VFIO
// nodes, and reports groups that can't be used.
func (b *builder) addVFIOContainer() {
	var ofGroup, ofFunctions bool
	// It stands for a companion of the configuration, so that companionNode can add the node.
	along := &config.Companion{}
	for _, p := range b.c.picks {
		if !isVFIONode(p.node) {
			continue
		}
		ofGroup = ofGroup || isGroupNode(p.node)
		ofFunctions = ofFunctions || isFunctionNode(p.node)
		along.Permissions = unitePermissions(along.Permissions, b.permissions(p))
	}
	container := b.at(vfioContainer)
	iommu := b.at(iommufd)
	if ofGroup && container != nil {
		b.companionNode(along, container, vfioContainer)
	}
	// A group takes the one or the other (VFIO_GROUP_SET_CONTAINER).
	if iommu != nil && (ofFunctions || container == nil) {
		b.companionNode(along, iommu, iommufd)
	}
	if ofGroup && container == nil && iommu == nil {
		b.problem("%s is missing: is the module vfio loaded?", vfioContainer)
	} else if !ofGroup && ofFunctions && iommu == nil {
		b.problem("%s is missing: is the module iommufd loaded?", iommufd)
	}
	// The kernel does not let a container use a group that is not viable.
	var checked []string
	for _, function := range b.c.members() {
		number := vfioGroup(function)
		if number == "" || slices.Contains(checked, number) {
			continue
		}
		checked = append(checked, number)
		var bound []string
		for _, h := range b.byGroup[number] {
			if h.PCI != nil && blocksGroup(h.PCI) {
				bound = append(bound, h.Name+" to "+h.PCI.Driver)
			}
		}
		if len(bound) > 0 {
			b.problem("IOMMU group %s is not viable: functions are bound to drivers of the host: %s",
				number, strings.Join(bound, ", "))
		}
	}
}

// unitePermissions is the union of permissions, in the order of "rwm".
func unitePermissions(a, b string) string {
	return strings.Map(func(p rune) rune {
		if strings.ContainsRune(a+b, p) {
			return p
		}
		return -1
	}, "rwm")
}

// blocksGroup reports whether a function prevents VFIO from using its IOMMU group: it
// is bound to a driver that does DMA (iommu_group_claim_dma_owner in
// drivers/iommu/iommu.c). VFIO drivers, PCI port drivers and pci-stub don't, nor did
// any bridge driver up to Linux 5.18.
func blocksGroup(p *device.PCI) bool {
	switch p.Driver {
	case "", "pci-stub", "pcieport":
		return false
	}
	return !p.VFIO && !p.IsBridge()
}
