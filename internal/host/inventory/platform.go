package inventory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// firmwareBuses are the buses whose devices the firmware, the hypervisor or the channel subsystem
// describes and names. Their devices count as platform devices. The UART of a Raspberry Pi, for
// example, is on one of the first two, depending on its driver.
var firmwareBuses = []string{"platform", "amba", "pnp", "ccw", "vio", "vmbus", "xen"}

// platform returns the platform device that owns a node whose ancestors are on no other
// bus. It returns nil if there is none, such as for virtual devices.
func (c *scan) platform(node string) *device.Hardware {
	dir, subsystem := c.platformDir(node)
	h := c.hardware[dir]
	// Another node of the same device may have been assigned before.
	if h != nil || dir == "" {
		return h
	}
	h = &device.Hardware{
		Bus:  device.PlatformBus,
		Path: dir,
		Name: base(dir),
		NUMA: -1,
	}
	if subsystem == "pnp" {
		// The kernel counts PNP devices, and ACPI names them.
		h.Name = cmp.Or(c.firmwareNode(dir), h.Name)
	}
	c.add(h)
	return h
}

// platformDir returns the nearest device above a node that is on one of firmwareBuses. A
// device with a counted name is a part of its parent. If all such devices have counted names, it is
// the nearest one. dir is empty if there is none.
func (c *scan) platformDir(node string) (dir, subsystem string) {
	if strings.HasPrefix(node, "devices/virtual/") {
		return "", ""
	}
	counted := "" // the nearest device with a counted name
	for dir := up(node); dir != ""; dir = up(dir) {
		d := c.sysfs.Dir(dir)
		subsystem := d.LinkBase("subsystem")
		c.report(d)
		if !slices.Contains(firmwareBuses, subsystem) {
			continue
		}
		if subsystem != "platform" || !isCounted(base(dir)) {
			return dir, subsystem
		}
		if counted == "" {
			counted = dir
		}
	}
	return counted, "platform"
}

// isCounted reports whether the name of a platform device ends with a number from its
// driver, "ci_hdrc.0", or from the kernel, "xhci-hcd.1.auto" (platform_device_add in
// drivers/base/platform.c). They count such devices in the order of their creation,
// which may differ in the next boot. Names from the firmware's tables start with an address.
func isCounted(name string) bool {
	number := name[strings.LastIndexByte(name, '.')+1:]
	hasNumber := number != name && device.IsDigits(number)
	return number == "auto" || hasNumber
}

// nameAutomatic removes the counted number from the name of a platform device, if the rest is
// unique: "HID-SENSOR-200041" for "HID-SENSOR-200041.1.auto". The numbers depend on the order in
// which all drivers create such devices. The sensors of AMD's sensor hub have no other hardware
// above them, because the driver sets no parent (amdtp_hid_probe in
// drivers/hid/amd-sfh-hid/amd_sfh_hid.c). It needs all platform devices of the host.
func (c *scan) nameAutomatic() {
	byName := make(map[string][]*device.Hardware)
	for _, h := range c.list {
		if h.Bus != device.PlatformBus {
			continue
		}
		counted, isAuto := strings.CutSuffix(h.Name, ".auto")
		dot := strings.LastIndexByte(counted, '.')
		if isAuto && dot > 0 && device.IsDigits(counted[dot+1:]) {
			name := counted[:dot]
			byName[name] = append(byName[name], h)
		}
	}
	for name, same := range byName {
		// Otherwise, the names with their numbers stay, because they must be unique.
		if len(same) == 1 {
			same[0].Name = name
		}
	}
}

// findParts sets Node.Part in classes that are numbered in probing order, and of which one hardware
// may have several nodes. A part is the place of the node in the tables of the firmware. Sensors
// also have their name, and buses without a place the name of their adapter. A node without a place
// and without a name has no part, and is identified by its position.
func (c *scan) findParts(h *device.Hardware) {
	buses := 0
	for _, n := range h.Nodes {
		if n.Subsystem == "i2c-dev" {
			buses++
		}
	}
	for _, n := range h.Nodes {
		switch n.Subsystem {
		case "gpio":
			place, _ := c.firmwarePlace(n)
			n.Part = partName.Replace(place)
		case "iio":
			place, _ := c.firmwarePlace(n)
			n.Part = partName.Replace(joinNotEmpty(place, c.label(n)))
		case "i2c-dev":
			place, hasPlace := c.firmwarePlace(n)
			// The name of an adapter on USB contains the number of the device.
			usesName := buses > 1 && h.Bus != device.USBBus
			if usesName && !hasPlace {
				place = c.label(n)
			}
			n.Part = partName.Replace(place)
		}
	}
}

// firmwarePlace returns the description of a node in the tables of the firmware, relative to its
// hardware. It is empty if the node is described as its hardware. isKnown is false if there is no
// description below the hardware.
func (c *scan) firmwarePlace(n *device.Node) (place string, isKnown bool) {
	own := c.firmwareNode(n.Hardware.Path)
	for dir := n.SysPath; dir != "" && dir != n.Hardware.Path; dir = up(dir) {
		node := c.firmwareNode(dir)
		if node == own && node != "" {
			return "", true
		}
		if node != "" {
			return strings.TrimPrefix(node, own+"/"), true
		}
	}
	return "", false
}

// label returns the label of a sensor or an adapter from the firmware, otherwise its name from the driver. The
// name of a multiplexed bus starts with the name of the bus above, which is removed (i2c_mux_add_adapter in
// drivers/i2c/i2c-mux.c).
func (c *scan) label(n *device.Node) string {
	label := c.attr(n.SysPath, "label")
	if label == "" {
		label = c.attr(n.SysPath, "name")
	}
	busAbove := base(up(up(up(n.SysPath))))
	return strings.TrimPrefix(label, busAbove+"-")
}

// firmwareNode returns the name of a device in the tables of the firmware: the path in a device tree,
// "soc/i2c@7e804000", or the name of an ACPI device, "SMO9210:00". If the kernel counts the names of
// the ACPI devices, it is their path. It is empty if the firmware does not describe the device
// (Documentation/ABI/testing/sysfs-firmware-ofw and sysfs-bus-acpi).
func (c *scan) firmwareNode(dir string) string {
	d := c.sysfs.Dir(dir)
	defer c.report(d)
	_, node, isInTree := strings.Cut(d.Link("of_node"), "/devicetree/base/")
	if isInTree || d.Err() != nil {
		return node
	}
	name := d.LinkBase("firmware_node")
	if strings.HasPrefix(name, "device:") {
		name = c.attr(dir+"/firmware_node", "path")
	}
	return strings.TrimPrefix(name, `\`)
}

// joinNotEmpty joins two texts with a dot, unless one of them is empty.
func joinNotEmpty(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "." + b
}

// partName replaces frequent characters of such names that IDs may not have.
var partName = strings.NewReplacer(
	"@", "-",
	":", "-",
	"/", ".",
	" ", "-",
	"(", "",
	")", "",
)
