package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Nodes of IOMMU groups and NVMe namespaces are virtual devices, whose path in sysfs does
// not contain their hardware.

// The node of an IOMMU group is "devices/virtual/vfio/12", or "noiommu-12" without an IOMMU
// (vfio_create_group in drivers/vfio/group.c).
const vfioGroupDir = "devices/virtual/vfio/"

// vfioGroup returns the number of the IOMMU group whose node has this directory. It is empty for
// other nodes.
func vfioGroup(sysPath string) string {
	name, isGroup := strings.CutPrefix(sysPath, vfioGroupDir)
	if !isGroup {
		return ""
	}
	return strings.TrimPrefix(name, "noiommu-")
}

// isVFIO reports whether a driver belongs to VFIO: "vfio-pci", "mlx5_vfio_pci",
// "hisi_acc_vfio_pci". drivers/vfio/pci has a driver for each kind of hardware whose state it can
// migrate.
func isVFIO(driver string) bool {
	return strings.HasSuffix(driver, "vfio_pci") || strings.HasSuffix(driver, "vfio-pci")
}

// vfioGroups returns the owner of the node of each IOMMU group, and marks the functions that VFIO
// uses. The owner is the function with the lowest address, among the functions that are bound to
// VFIO. If no function is known to be bound to VFIO, as during the last unbind, it is the lowest of
// all. A mediated device has its own group. The owner may be a function that could not be read, so
// that no other device gets its node.
func (c *scan) vfioGroups(nodes []*node) map[string]*device.Hardware {
	members := make(map[string][]*device.Hardware)
	for _, n := range nodes {
		group := vfioGroup(n.SysPath)
		if group != "" {
			members[group] = nil
		}
		// The kernel makes such a node only for a device that is bound to VFIO.
		if n.Subsystem == "vfio-dev" {
			c.markVFIO(n)
		}
	}
	owners := make(map[string]*device.Hardware, len(members))
	if len(members) == 0 {
		return owners
	}
	// A function that could not be read may be the owner as well.
	all := slices.AppendSeq(slices.Clip(c.list), maps.Values(c.unreadPCI))
	for _, h := range all {
		group := h.IOMMUGroup()
		list, hasNode := members[group]
		if !hasNode {
			continue
		}
		if h.MDev != nil {
			owners[group] = h
		} else {
			members[group] = append(list, h)
		}
	}
	for group, list := range members {
		owner := vfioOwner(list)
		if owner != nil {
			owners[group] = owner
		}
	}
	return owners
}

// markVFIO marks the function of a node of the subsystem vfio-dev as used by VFIO.
func (c *scan) markVFIO(n *node) {
	bus, dir := c.busDevice(n.SysPath)
	h := c.hardware[dir]
	if bus == device.PCIBus && h != nil {
		h.PCI.VFIO = true
	}
}

// vfioOwner returns the owner of the node of an IOMMU group, or nil if the group has only bridges.
func vfioOwner(group []*device.Hardware) *device.Hardware {
	// Bridges stay with their own driver.
	group = slices.DeleteFunc(group, func(h *device.Hardware) bool {
		return h.PCI.IsBridge()
	})
	if len(group) == 0 {
		return nil
	}
	// The node of a group with one function can't belong to another function, even if the name of
	// its driver is unknown, such as the driver of NVIDIA's virtual GPUs.
	if len(group) == 1 && group[0].PCI.Driver != "" {
		group[0].PCI.VFIO = true
	}
	return slices.MinFunc(group, func(a, b *device.Hardware) int {
		if a.PCI.VFIO != b.PCI.VFIO {
			if a.PCI.VFIO {
				return -1
			}
			return 1
		}
		return device.CompareNumber(a.Name, b.Name)
	})
}

// A namespace of an NVMe subsystem that may have several controllers (native multipath)
// is a virtual device below the subsystem, "devices/virtual/nvme-subsystem/nvme-subsys0". A
// namespace of a remote controller is below "devices/virtual/nvme-fabrics".
const (
	nvmeVirtual      = "devices/virtual/nvme-"
	nvmeSubsystemDir = nvmeVirtual + "subsystem/"
)

// namespace returns the PCI function of the namespace of a node, or nil for other nodes. If several
// functions are controllers of the namespace, it is the function with the lowest address. A
// function that could not be read is the last choice. Unless exactly one function is known, the
// namespace is identified by its own identifier.
func (c *scan) namespace(n *device.Node) *device.Hardware {
	isNamespace := n.Subsystem == "block" || n.Subsystem == "nvme-generic"
	if !isNamespace || !strings.HasPrefix(n.SysPath, nvmeVirtual) {
		return nil
	}
	var owner, unread *device.Hardware
	controllers := c.nvmeControllers(n)
	for _, dir := range controllers {
		_, function := busDevice(dir)
		unread = cmp.Or(c.unreadPCI[function], unread)
		h := c.hardware[function]
		if h == nil {
			continue
		}
		if owner == nil || device.CompareNumber(h.Name, owner.Name) < 0 {
			owner = h
		}
	}
	if owner == nil && unread != nil {
		return unread
	}
	if owner == nil || len(controllers) > 1 {
		// Its UUID, NGUID or EUI-64, or the kernel's substitute for them (wwid_show in
		// drivers/nvme/host/sysfs.c).
		n.Namespace = c.attr(namespaceDir(n), "wwid")
	}
	return owner
}

// nvmeControllers returns the directories of the controllers of a namespace in an NVMe subsystem, which share its
// namespaces (nvme_init_subsystem in drivers/nvme/host/core.c). The result is nil for other nodes.
func (c *scan) nvmeControllers(n *device.Node) []string {
	below, isInSubsystem := strings.CutPrefix(n.SysPath, nvmeSubsystemDir)
	if !isInSubsystem {
		return nil
	}
	name, _, _ := strings.Cut(below, "/")
	controllers, err := c.sysfs.LinksWith(nvmeSubsystemDir+name, "nvme")
	c.problems.add(n.SysPath, err)
	var dirs []string
	for number, dir := range controllers {
		if device.IsDigits(number) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// namespaceDir returns the directory of the namespace of a node: a disk, a partition, or the
// generic node of the namespace.
func namespaceDir(n *device.Node) string {
	above := up(n.SysPath)
	// "nvme0n1p2" is below "nvme0n1".
	isPartition := strings.HasPrefix(n.Kernel, base(above)+"p")
	if isPartition {
		return above
	}
	// "ng0n1" belongs to "nvme0n1", which is next to it.
	number, isGeneric := strings.CutPrefix(n.Kernel, "ng")
	if isGeneric {
		return above + "/nvme" + number
	}
	return n.SysPath
}
