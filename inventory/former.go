package inventory

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// formerly fills in what the version before took for the hardware of the nodes of h. That
// version gave nodes to platform and AMBA devices only, or else to none, and took only
// names that end with ".auto" for counted ones.
func (c *scan) formerly(h *device.Hardware) {
	switch h.Bus {
	case device.USBBus:
		controller := usbController(h.Path, formerlyCounted)
		if h.USB.Controller == controller && (h.HasSerial() || !h.IsRootHub()) {
			return
		}
		was, u := *h, *h.USB
		was.USB, u.Controller = &u, controller
		for _, n := range h.Nodes {
			n.Formerly = &was
		}
	case device.PlatformBus:
		owners := map[string]*device.Hardware{"": {}}
		for _, n := range slices.Concat(h.Nodes, h.Nets) {
			dir, _ := c.platformDir(n.SysPath, formerBuses, formerlyCounted)
			if owners[dir] == nil {
				owners[dir] = &device.Hardware{Bus: device.PlatformBus, Path: dir, Name: base(dir)}
			}
			n.Formerly = owners[dir]
			if n.Type != device.NetInterface {
				n.Formerly.Nodes = append(n.Formerly.Nodes, n)
			} else {
				n.Formerly.Nets = append(n.Formerly.Nets, n)
			}
		}
	default:
		for _, n := range h.Nodes {
			if n.Part != "" {
				n.Formerly = h
			} else if strings.HasPrefix(n.SysPath, nvmeVirtual) {
				n.Formerly = &device.Hardware{}
			}
		}
	}
}

// formerBuses and formerlyCounted are firmwareBuses and isCounted of the version before.
var formerBuses = []string{"platform", "amba"}

func formerlyCounted(name string) bool { return strings.HasSuffix(name, ".auto") }
