package device_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

func TestConflict(t *testing.T) {
	t.Parallel()
	const hub = "devices/pci0000:00/0000:00:14.0/usb1/1-2"
	for _, c := range []struct {
		a, b []string
		want bool
	}{
		{[]string{hub}, []string{hub}, true},
		{[]string{hub}, []string{hub + "/1-2.1"}, true},
		{[]string{hub + "/1-2.1/1-2.1.4"}, []string{hub}, true},
		{[]string{hub + "/1-2.1"}, []string{hub + "/1-2.2"}, false},
		{[]string{hub}, []string{hub + "0"}, false}, // the port beside it
		{[]string{hub}, []string{"group 2", hub + "//if00:ttyUSB"}, true},
		{[]string{device.NodePlace(hub, "")}, []string{hub + "/1-2.1"}, true}, // the bus node of the hub
		{[]string{"group 2"}, []string{"group 21"}, false},
		{nil, []string{hub}, false},
	} {
		if got := device.Conflict(c.a, c.b); got != c.want {
			t.Errorf("Conflict(%q, %q) = %v", c.a, c.b, got)
		}
		if got := device.Conflict(c.b, c.a); got != c.want {
			t.Errorf("Conflict(%q, %q) = %v", c.b, c.a, got)
		}
	}
}

func TestSameHardware(t *testing.T) {
	t.Parallel()
	const stick = "devices/pci0000:00/0000:00:14.0/usb1/1-2"
	port := device.NodePlace(stick, "if00:ttyUSB")
	bus := device.NodePlace(stick, "")
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{stick, stick, true},
		{stick, port, true},
		{stick, bus, true},
		{port, bus, false}, // single nodes of one device
		{stick, stick + "/1-2.1", false},
		{stick, stick + "0", false},
	} {
		a := []string{"group 1", c.a}
		b := []string{c.b, "group 2"}
		if got := device.SameHardware(a, b); got != c.want {
			t.Errorf("SameHardware(%q, %q) = %v", a, b, got)
		}
		if got := device.SameHardware(b, a); got != c.want {
			t.Errorf("SameHardware(%q, %q) = %v", b, a, got)
		}
	}
}

func TestIsPlaceOf(t *testing.T) {
	t.Parallel()
	const port = "devices/pci0000:3a/0000:3a:00.0/"
	const function, virtual = port + "0000:3b:00.0", port + "0000:3b:02.0"
	for _, c := range []struct {
		place, path string
		want        bool
	}{
		{function, function, true},
		{device.NodePlace(function, "uverbs"), function, true},
		{function + "/0000:3b:02.0", virtual, true},
		{device.NodePlace(function+"/0000:3b:02.0", "uverbs"), virtual, true},
		{function, virtual, false},
		{"devices/usb1/1-2", "devices/usb2/1-2", false},
	} {
		if got := device.IsPlaceOf(c.place, c.path); got != c.want {
			t.Errorf("IsPlaceOf(%q, %q) = %v", c.place, c.path, got)
		}
	}
}

func TestPortOf(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{
		"devices/pci0000:00/0000:00:14.0/usb1/1-2":                  "usb1/1-2",
		"devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2.4//if00:ttyA": "usb1/1-2/1-2.4",
		"devices/pci0000:00/0000:00:14.0":                           "",
		"devices/pci0000:00/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0":   "usb1/1-2",
		"usb:10c4:ea60:A1": "",
		"/dev/usb/lp0":     "",
	} {
		if got := device.PortOf(place); got != want {
			t.Errorf("PortOf(%q) = %q, want %q", place, got, want)
		}
	}
}
