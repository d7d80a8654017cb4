package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Nodes of IOMMU groups and NVMe namespaces are virtual devices, whose path in sysfs does
// not lead to their hardware.

// The node of an IOMMU group is "devices/virtual/vfio/12", or "noiommu-12" without an IOMMU
// (vfio_create_group in drivers/vfio/group.c).
const vfioGroupDir = "devices/virtual/vfio/"

// vfioGroup returns the IOMMU group of the node with a directory, "" for other nodes.
func vfioGroup(sysPath string) string {
	name, ok := strings.CutPrefix(sysPath, vfioGroupDir)
	if !ok {
		return ""
	}
	return strings.TrimPrefix(name, "noiommu-")
}

// isVFIO reports whether a driver is of VFIO: "mlx5_vfio_pci", "hisi-acc-vfio-pci".
// drivers/vfio/pci has one for each kind of hardware whose state it can migrate.
func isVFIO(driver string) bool {
	return strings.HasSuffix(driver, "vfio_pci") || strings.HasSuffix(driver, "vfio-pci")
}

// vfioGroups fills in which functions are used by VFIO and returns the owner of the
// node by IOMMU group: of the functions bound to VFIO, or of all if none is known to be (as
// while the last is unbound), the one with the lowest address. A mediated device has its
// own group. An unread function may be the owner, so that nobody else gets its node.
func (c *scan) vfioGroups(nodes []*node) map[string]*device.Hardware {
	members := make(map[string][]*device.Hardware)
	for _, n := range nodes {
		if group := vfioGroup(n.SysPath); group != "" {
			members[group] = nil
		}
		if n.Subsystem == "vfio-dev" {
			if bus, dir := c.busDevice(n.SysPath); bus == device.PCIBus && c.hardware[dir] != nil {
				setVFIO(c.hardware[dir])
			}
		}
	}
	owners := make(map[string]*device.Hardware, len(members))
	if len(members) == 0 {
		return owners
	}
	for _, h := range slices.AppendSeq(slices.Clip(c.list), maps.Values(c.unreadPCI)) {
		group := h.IOMMUGroup()
		if list, ok := members[group]; !ok {
		} else if h.MDev != nil {
			owners[group] = h
		} else {
			members[group] = append(list, h)
		}
	}
	for group, list := range members {
		if h := vfioOwner(list); h != nil {
			owners[group] = h
		}
	}
	return owners
}

func setVFIO(h *device.Hardware) {
	if h.PCI.VFIO {
		return
	}
	p := *h.PCI
	p.VFIO = true
	h.PCI = &p
}

func vfioOwner(group []*device.Hardware) *device.Hardware {
	group = slices.DeleteFunc(group, func(h *device.Hardware) bool {
		return h.PCI.IsBridge()
	})
	if len(group) == 0 {
		return nil
	}
	// The node of a group with one function can't be for another one, even if its
	// driver has an unknown name, like that of NVIDIA's virtual GPUs.
	if len(group) == 1 && group[0].PCI.Driver != "" {
		setVFIO(group[0])
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
// is a virtual device below the subsystem, "devices/virtual/nvme-subsystem/nvme-subsys0",
// as is one of a remote controller, below "devices/virtual/nvme-fabrics".
const (
	nvmeVirtual      = "devices/virtual/nvme-"
	nvmeSubsystemDir = nvmeVirtual + "subsystem/"
)

// namespace returns the PCI function that leads to the namespace of a node, with the lowest
// address if there are several; nil for other nodes. Unless there is exactly one, the
// namespace goes by its own identifier. An unread one is the last choice.
func (c *scan) namespace(n *device.Node) *device.Hardware {
	if !strings.HasPrefix(n.SysPath, nvmeVirtual) || n.Subsystem != "block" && n.Subsystem != "nvme-generic" {
		return nil
	}
	var owner, unread *device.Hardware
	controllers := 0
	if below, ok := strings.CutPrefix(n.SysPath, nvmeSubsystemDir); ok {
		name, _, _ := strings.Cut(below, "/")
		dirs, err := c.sysfs.NVMeControllers(nvmeSubsystemDir + name)
		c.problems.add(n.SysPath, err)
		controllers = len(dirs)
		for _, dir := range dirs {
			_, function := busDevice(dir)
			if h := c.hardware[function]; h != nil && (owner == nil || device.CompareNumber(h.Name, owner.Name) < 0) {
				owner = h
			}
			unread = cmp.Or(c.unreadPCI[function], unread)
		}
	}
	if owner == nil && unread != nil {
		return unread
	}
	if owner == nil || controllers > 1 {
		disk := n.SysPath
		if above := up(disk); strings.HasPrefix(n.Kernel, base(above)+"p") {
			disk = above // of a partition
		} else if number, ok := strings.CutPrefix(n.Kernel, "ng"); ok {
			disk = above + "/nvme" + number
		}
		n.Namespace = fact(c, &c.cache.of(disk).wwid, disk, c.sysfs.WWID)
	}
	return owner
}
