package inventory

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// The node of an IOMMU group is a virtual device, "devices/virtual/vfio/12", or
// "noiommu-12" without an IOMMU (vfio_create_group in drivers/vfio/group.c): its path
// does not lead to the functions of the group.
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
// node by IOMMU group: of the functions bound to VFIO the one with the lowest address,
// or of all if none is known to be, as while the last one is being unbound. A mediated
// device has its own group.
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
	for _, h := range c.list {
		group := h.IOMMUGroup()
		switch list, ok := members[group]; {
		case !ok:
		case h.MDev != nil:
			owners[group] = h
		default:
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
	group = slices.DeleteFunc(group, func(h *device.Hardware) bool { return h.PCI.IsBridge() })
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

// readMDevs adds the mediated devices of the host. Their parents are above them in
// sysfs, so that finish finds them like any other parent.
func (c *scan) readMDevs() {
	for _, e := range c.onBus(device.MDevBus, c.sysfs.MDevs) {
		m, err := c.sysfs.MDev(e.Path)
		if !c.sysfs.Exists(e.Path) {
			continue
		}
		c.problems.add(e.Path, err)
		c.add(&device.Hardware{Bus: device.MDevBus, Path: e.Path, Name: e.Name, NUMA: -1, MDev: &m})
		c.hasMDevs = true
	}
}

// busDevice returns the device of a bus that owns dir: the nearest mediated device,
// otherwise the result of the function busDevice. The names of mediated devices do not
// identify them as such, so that removed ones are unknown.
func (c *scan) busDevice(dir string) (bus device.Bus, found string) {
	if c.hasMDevs {
		for d := dir; d != ""; d = up(d) {
			if h := c.hardware[d]; h != nil && h.MDev != nil {
				return device.MDevBus, d
			}
		}
	}
	return busDevice(dir)
}
