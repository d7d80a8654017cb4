package inventory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// firmwareBuses are the buses whose devices the firmware, the hypervisor or the
// channel subsystem describes and names: they count as platform devices. The driver
// decides on which of the first two the UART of a Raspberry Pi is.
var firmwareBuses = []string{"platform", "amba", "pnp", "ccw", "vio", "vmbus", "xen"}

// platform returns the platform device that owns a node whose ancestors are on no other
// bus, nil if there is none, as for virtual devices.
func (c *scan) platform(node string) *device.Hardware {
	dir, subsystem := c.platformDir(node)
	h := c.hardware[dir]
	if h != nil || dir == "" {
		return h
	}
	h = &device.Hardware{Bus: device.PlatformBus, Path: dir, Name: base(dir), NUMA: -1}
	if subsystem == "pnp" {
		// The kernel counts PNP devices, and ACPI names them.
		h.Name = cmp.Or(c.firmwareNode(dir), h.Name)
	}
	c.add(h)
	return h
}

// platformDir returns the nearest device above a node that is on one of firmwareBuses. A
// device with a counted name is a part of its parent.
func (c *scan) platformDir(node string) (dir, subsystem string) {
	if strings.HasPrefix(node, "devices/virtual/") {
		return "", ""
	}
	part := ""
	for dir := up(node); dir != ""; dir = up(dir) {
		subsystem := fact(c, &c.cache.of(dir).subsystem, dir, c.sysfs.Subsystem)
		switch {
		case !slices.Contains(firmwareBuses, subsystem):
		case subsystem != "platform" || !isCounted(base(dir)):
			return dir, subsystem
		case part == "":
			part = dir
		}
	}
	return part, "platform"
}

// isCounted reports whether the name of a platform device ends with a number that its
// driver gave it, "ci_hdrc.0", or the kernel, "xhci-hcd.1.auto" (platform_device_add in
// drivers/base/platform.c). They count such devices in the order in which they make them,
// which may differ in the next boot; the firmware's tables have addresses in front.
func isCounted(name string) bool {
	number := name[strings.LastIndexByte(name, '.')+1:]
	return number == "auto" || number != name && isDigits(number)
}

// nameAuto names platform devices with a number that the kernel counted without it, if that
// name is unique: "HID-SENSOR-200041" for "HID-SENSOR-200041.1.auto". The numbers depend on the
// order in which all drivers made such devices. The sensors of AMD's sensor hub have no other
// hardware above them, since the driver sets no parent (amdtp_hid_probe in
// drivers/hid/amd-sfh-hid/amd_sfh_hid.c).
func (c *scan) nameAuto() {
	byName := make(map[string][]*device.Hardware)
	for _, h := range c.list {
		if h.Bus != device.PlatformBus {
			continue
		}
		counted, isAuto := strings.CutSuffix(h.Name, ".auto")
		dot := strings.LastIndexByte(counted, '.')
		if isAuto && dot > 0 && isDigits(counted[dot+1:]) {
			byName[counted[:dot]] = append(byName[counted[:dot]], h)
		}
	}
	for name, same := range byName {
		if len(same) == 1 {
			same[0].Name = name
		}
	}
}

// parts identifies the nodes of hardware in classes that may have several below one
// hardware and are numbered in probing order: by the part of the hardware in the tables of
// the firmware, and the name of a sensor. A bus without either goes by the name of its
// adapter.
func (c *scan) parts(h *device.Hardware) {
	buses := 0
	for _, n := range h.Nodes {
		if n.Subsystem == "i2c-dev" {
			buses++
		}
	}
	for _, n := range h.Nodes {
		var named bool
		switch n.Subsystem {
		case "iio":
			named = true
		case "i2c-dev":
			// The name of an adapter on USB has the number of the device.
			named = buses > 1 && h.Bus != device.USBBus
		case "gpio":
		default:
			continue
		}
		n.Part = c.part(n, named)
	}
}

func (c *scan) part(n *device.Node, named bool) string {
	own, node := c.firmwareNode(n.Hardware.Path), ""
	for dir := n.SysPath; node == "" && dir != "" && dir != n.Hardware.Path; dir = up(dir) {
		node = c.firmwareNode(dir)
	}
	var parts []string
	if node != "" && node != own {
		parts = append(parts, strings.TrimPrefix(node, own+"/"))
	}
	if named && (node == "" || n.Subsystem == "iio") {
		label := fact(c, &c.cache.of(n.SysPath).label, n.SysPath, c.sysfs.Label)
		// The name of a multiplexed bus starts with that of the bus above
		// (i2c_mux_add_adapter in drivers/i2c/i2c-mux.c).
		if label = strings.TrimPrefix(label, base(up(up(up(n.SysPath))))+"-"); label != "" {
			parts = append(parts, label)
		}
	}
	return partName.Replace(strings.Join(parts, "."))
}

func (c *scan) firmwareNode(dir string) string {
	return fact(c, &c.cache.of(dir).firmware, dir, c.sysfs.FirmwareNode)
}

// partName replaces what is frequent in such names and not in the grammar of IDs.
var partName = strings.NewReplacer("@", "-", ":", "-", "/", ".", " ", "-", "(", "", ")", "")
