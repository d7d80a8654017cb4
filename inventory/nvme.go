package inventory

import (
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// A namespace of an NVMe subsystem that may have several controllers (native multipath)
// is a virtual device below the subsystem, "devices/virtual/nvme-subsystem/nvme-subsys0",
// as is one of a remote controller, below "devices/virtual/nvme-fabrics".
const (
	nvmeVirtual      = "devices/virtual/nvme-"
	nvmeSubsystemDir = nvmeVirtual + "subsystem/"
)

// namespace returns the PCI function that leads to the namespace of a node: of several
// the one with the lowest address. It is nil for other nodes. Unless there is exactly
// one, the namespace goes by its own identifier.
func (c *scan) namespace(n *device.Node) *device.Hardware {
	if !strings.HasPrefix(n.SysPath, nvmeVirtual) || n.Subsystem != "block" && n.Subsystem != "nvme-generic" {
		return nil
	}
	var owner *device.Hardware
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
		}
	}
	if owner == nil || controllers > 1 {
		disk := n.SysPath
		if above := up(disk); strings.HasPrefix(n.Kernel, base(above)+"p") {
			disk = above // of a partition
		} else if number, ok := strings.CutPrefix(n.Kernel, "ng"); ok {
			disk = above + "/nvme" + number
		}
		wwid, err := cached(&c.cache.of(disk).wwid, disk, c.sysfs.WWID)
		c.problems.add(n.SysPath, err)
		n.Namespace = wwid
	}
	return owner
}
