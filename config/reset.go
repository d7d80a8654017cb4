package config

import "fmt"

// Reset selects how a device is reset before a container with it starts. It is empty if the device
// is not reset.
type Reset string

// The values of reset. ResetUSB resets the port of a USB device (USBDEVFS_RESET in
// drivers/usb/core/devio.c), and ResetPCI resets a PCI function (the attribute reset in
// drivers/pci/pci-sysfs.c).
const (
	ResetUSB Reset = "usb"
	ResetPCI Reset = "pci"
)

// bindReset binds reset.
func (c *Container) bindReset(t *table) {
	words(t, "reset", &c.Reset, []Reset{ResetUSB, ResetPCI},
		`whether each device is reset before a container with it starts: "usb" resets the port of USB devices, "pci" resets PCI functions`)
}

// checkReset reports keys that contradict a reset. A reset is of a whole device of the host, so
// that no other container may have a part of it.
func (v value) checkReset(r *Resource) {
	reset := r.Container.Reset
	if reset == "" {
		return
	}
	key := v.child("container").child("reset")
	key.needs("resetting devices of the host", allowReset, func(a Allow) bool { return a.Reset })
	if r.Each != EachDevice {
		key.report(fmt.Sprintf(`%q requires each = "device": a reset is of the whole hardware`, reset), "")
		return
	}
	if r.GroupBy != "" {
		key.report(fmt.Sprintf("%q cannot be combined with each = %q: a reset is of a single device of the host", reset, r.GroupBy), "")
		return
	}
	for i := range r.Match {
		if rule := reset.refuses(&r.Match[i]); rule != "" {
			key.report(fmt.Sprintf("%q %s match %d", reset, rule, i+1), "")
			return
		}
	}
	const why = "because container.reset would reset the device of another container"
	if v.refuseCount(r, (*Match).hasNode, why) {
		return
	}
	if r.Shared {
		v.child("shared").report("true: want false, "+why, "")
	}
}

// refuses returns why the devices of a match cannot be reset in this way, or an empty string. The
// rule continues with the number of the match.
func (s Reset) refuses(m *Match) string {
	wanted := string(s)
	if !m.Has(wanted) {
		return fmt.Sprintf("requires %s in", wanted)
	}
	// The device of a match with usb and pci is the USB device, below the function.
	if s == ResetPCI && m.Has("usb") {
		return "cannot be combined with usb in"
	}
	// An interface may be in a container, and a mediated device is a part of a function.
	for _, table := range []string{"net", "mdev"} {
		if m.Has(table) {
			return fmt.Sprintf("cannot be combined with %s in", table)
		}
	}
	// VFIO resets a function by itself when it is opened (vfio_pci_core_enable in
	// drivers/vfio/pci/vfio_pci_core.c).
	if m.VFIO {
		return "cannot be combined with vfio in"
	}
	return ""
}
