package inventory

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// formerly fills in the hardware that the version before found for the nodes of h. Of
// firmware's buses that version knew platform and AMBA only, and of counted names only
// those with the suffix ".auto".
func (c *scan) formerly(h, none *device.Hardware) {
	was := h
	if h.Bus == device.USBBus {
		controller := usbController(h.Path, formerlyCounted)
		if h.USB.Controller != controller || h.IsRootHub() && !h.HasSerial() {
			other := *h
			u := *h.USB
			u.Controller = controller
			other.USB = &u
			was = &other
		}
	}
	if h.Bus == device.PlatformBus {
		c.formerlyPlatform(h)
		return
	}
	for _, nodes := range [][]*device.Node{h.Nodes, h.Nets} {
		for _, n := range nodes {
			if strings.HasPrefix(n.SysPath, nvmeVirtual) {
				n.Formerly = none
			} else if was != h || n.Part != "" {
				n.Formerly = was
			}
		}
	}
}

func (c *scan) formerlyPlatform(h *device.Hardware) {
	owners := map[string]*device.Hardware{"": {}} // by directory
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
}

// formerBuses and formerlyCounted are firmwareBuses and isCounted of the version before.
var formerBuses = []string{"platform", "amba"}

func formerlyCounted(name string) bool { return strings.HasSuffix(name, ".auto") }
