package device_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

func TestAttributes(t *testing.T) {
	t.Parallel()
	for _, a := range device.Attributes() {
		found, ok := device.FindAttribute(a.Name())
		if !ok || found.Name() != a.Name() || found.Help != a.Help {
			t.Errorf("FindAttribute(%q) = %+v", a.Name(), found)
		}
		if !a.OnlyVariable && (a.Example == "" || a.Help == "") {
			t.Errorf("%s has no example or no help", a.Name())
		}
		if got := a.Of(&device.Hardware{}, nil); len(got) > 0 {
			t.Errorf("%s of hardware without anything = %q", a.Name(), got)
		}
	}
	for _, name := range []string{"", "usb", "usb.", "usb.driver", "vendor"} {
		if a, ok := device.FindAttribute(name); ok {
			t.Errorf("FindAttribute(%q) = %s", name, a.Name())
		}
	}
}

func TestAttributeOf(t *testing.T) {
	t.Parallel()
	function := &device.Hardware{Bus: device.PCIBus, Name: "0000:3b:00.0", PCI: &device.PCI{Address: "0000:3b:00.0", Vendor: "8086", VF: -1}}
	stick := &device.Hardware{Bus: device.USBBus, Name: "1-2", Parent: function, USB: &device.USB{
		Vendor: "10c4", Product: "ea60", Serial: " A1 ",
		Interfaces: []device.USBInterface{{Number: 0, Class: "02"}, {Number: 1, Class: "0a"}, {Number: 2, Class: "02"}},
	}}
	bus := &device.Node{Hardware: stick, Interface: -1}
	second := &device.Node{Hardware: stick, Interface: 1}
	can := &device.Node{Path: "can0", Hardware: stick, Interface: 0, Net: &device.Net{Type: "can"}}
	stick.Nets = []*device.Node{can, {Path: "can1", Hardware: stick, Net: &device.Net{Type: "can"}}}
	for _, tt := range []struct {
		name string
		h    *device.Hardware
		n    *device.Node
		want []string
	}{
		{"usb.id", stick, nil, []string{"10c4:ea60"}},
		{"usb.serial", stick, second, []string{"A1"}},
		{"usb.manufacturer", stick, nil, nil},
		{"usb.id", function, nil, nil},
		{"usb.interface", stick, nil, []string{"0", "1", "2"}},
		{"usb.interface", stick, bus, []string{"0", "1", "2"}},
		{"usb.interface", stick, second, []string{"1"}},
		{"usb.interface_class", stick, bus, []string{"02", "0a"}},
		{"pci.slot", stick, nil, []string{"0000:3b:00"}}, // of the parent function
		{"pci.vf", function, nil, nil},
		{"pci.id", function, nil, nil}, // without a device number there is no ID
		{"net.name", stick, can, []string{"can0"}},
		{"net.name", stick, nil, []string{"can0", "can1"}},
		{"net.type", stick, nil, []string{"can"}},
		{"net.name", nil, can, []string{"can0"}},
		{"net.name", stick, second, nil},
		{"mdev.type", stick, nil, nil},
		{"usb.id", nil, second, nil},
	} {
		a, _ := device.FindAttribute(tt.name)
		if diff := cmp.Diff(tt.want, a.Of(tt.h, tt.n)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
