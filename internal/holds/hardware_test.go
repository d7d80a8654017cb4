package holds_test

import (
	"fmt"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// hardware is a piece of hardware of the model.
type hardware struct {
	name string
	// port is where a USB device is plugged in, empty while it is unplugged.
	port    string
	plugged int // how often it was plugged in
	// serial is the serial number of a USB device, empty if it has none.
	serial string
	// whole is the physical function of a virtual function.
	whole *hardware
}

// isUSB reports whether the hardware can be unplugged.
func (h *hardware) isUSB() bool { return h.whole == nil && !strings.HasPrefix(h.name, "0000:") }

// places are what an offer of the hardware uses.
func (h *hardware) places() []string {
	switch {
	case h.whole != nil:
		return []string{"devices/" + h.whole.name + "/" + h.name}
	case !h.isUSB():
		return []string{"devices/" + h.name}
	case h.serial == "":
		return []string{"devices/usb1/" + h.port}
	}
	return []string{"devices/usb1/" + h.port, "usb:" + h.serial}
}

// id is the ID of the hardware. byPort is another identity of a device with a serial number.
func (h *hardware) id(byPort bool) string {
	if h.serial != "" && !byPort {
		return "usb:" + h.serial
	}
	if h.isUSB() {
		return "port:" + h.name + ":" + h.port
	}
	return h.name
}

// identity distinguishes hardware. A device without a serial number is another one each time that it is
// plugged in: only its ID says that it is the same.
func (h *hardware) identity() string {
	if h.isUSB() && h.serial == "" {
		return fmt.Sprint(h.name, h.plugged)
	}
	return h.name
}

// conflicts is the plain definition: containers of two offers use the same hardware.
func (o *offer) conflicts(other *offer) bool {
	heldName, _ := device.SplitResourceKey(o.want.Resource)
	name, _ := device.SplitResourceKey(other.want.Resource)
	if o.want.Shared && other.want.Shared && heldName != name {
		return false
	}
	areExclusive := o.want.Exclusive || other.want.Exclusive
	isPart := o.hw.whole == other.hw || other.hw.whole == o.hw
	isSame := o.identity == other.identity || o.want.ID == other.want.ID
	return isSame || areExclusive && isPart
}

// offer is a device that a resource offers.
type offer struct {
	hw *hardware
	// identity is the one of the hardware when it was offered.
	identity string
	want     holds.Wanted
}

// recorded is what the file of a claim says.
func (o *offer) recorded() []holds.Wanted {
	return []holds.Wanted{{ID: o.want.ID, Resource: o.want.Resource}}
}
