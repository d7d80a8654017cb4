package inventory

import (
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// readMDev adds the mediated devices of the host. What they are parts of is
// above them in sysfs, so that finish finds it like any other parent.
func (c *scan) readMDev() {
	entries, err := c.sysfs.MDevs()
	if notExist(err) {
		return
	}
	if err != nil {
		c.problem("bus/mdev/devices", err)
	}
	for _, e := range entries {
		m, err := c.sysfs.MDev(e.Path)
		if !c.sysfs.Exists(e.Path) {
			continue
		}
		if err != nil && !sysfs.Gone(err) {
			c.problem(e.Path, err)
		}
		c.hardware[e.Path] = &device.Hardware{
			Bus: device.MDevBus, Path: e.Path, Name: e.Name, NUMA: -1,
			MDev: &device.MDev{UUID: e.Name, Type: m.Type, Name: m.Name, IOMMUGroup: m.IOMMUGroup},
		}
		c.mdevs = append(c.mdevs, e.Path)
	}
}

// busDevice returns the device of a bus that owns what is at dir: the nearest
// mediated device, else what the function busDevice finds. The names of
// mediated devices do not say what they are, so those that have gone are not
// known.
func (c *scan) busDevice(dir string) (bus device.Bus, found string) {
	if len(c.mdevs) > 0 {
		for d := dir; d != ""; d = up(d) {
			if h := c.hardware[d]; h != nil && h.MDev != nil {
				return device.MDevBus, d
			}
		}
	}
	return busDevice(dir)
}
