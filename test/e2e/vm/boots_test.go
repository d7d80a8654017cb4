package vm

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// Bus numbers and kernel names depend on the controller that the kernel detects first.
// IDs do not.
func TestBoots(t *testing.T) {
	type boot struct {
		ids   []string          // as listed
		nodes map[string]string // by ID
		buses []string          // of the first controller
	}
	var boots []boot
	for _, c := range []struct {
		name  string
		order []string
	}{
		{"a boot with the controllers in order", []string{usb0, usb1}},
		{"a boot with the controllers the other way round", []string{usb1, usb0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := Boot(t, hotplugHardware[:4]...)
			m.Plug(t, dongle("1", ""))
			m.Plug(t, dongle("2", "FTALPHA"))
			m.Plug(t, Device{Driver: "usb-serial", Bus: "usb1.0", Port: "1"})
			m.Plug(t, Device{Driver: "usb-serial", Bus: "usb1.0", Port: "2", Serial: "0001"})
			m.Plug(t, Device{Driver: "usb-hub", Bus: "usb1.0", Port: "3"})
			m.Plug(t, Device{Driver: "usb-serial", Bus: "usb1.0", Port: "3.2"})
			m.Write(t, "/sys/bus/pci/drivers_autoprobe", "0")
			m.Load(t, "usb")
			devices := 0
			for _, controller := range c.order {
				m.Write(t, "/sys/bus/pci/drivers/xhci_hcd/bind", controller)
				devices += map[string]int{usb0: 2, usb1: 3}[controller]
				var names []string
				for n := range devices {
					names = append(names, fmt.Sprintf("ttyUSB%d", n))
				}
				m.WaitFiles(t, "/dev/ttyUSB*", names...)
			}
			m.serve(t, serialByDevice)
			list := m.Healthy(t, serial, byPort(usb0, "1"), bySerial("FTALPHA"),
				byPort(usb1, "1"), byPort(usb1, "2"), byPort(usb1, "3.2"))
			b := boot{ids: slices.Sorted(maps.Keys(list.Devices)), nodes: map[string]string{}}
			for _, id := range b.ids {
				b.nodes[id] = m.Allocate(t, "", serial, id).Nodes[0].Path
			}
			b.buses = m.Files(t, "/sys/bus/pci/devices/"+usb0+"/usb*")
			boots = append(boots, b)
		})
	}
	if len(boots) != 2 {
		t.Fatalf("%d boots succeeded; want 2", len(boots))
	}
	first, second := boots[0], boots[1]
	if !slices.Equal(first.ids, second.ids) {
		t.Errorf("IDs %q in the first boot, %q in the second; want the same", first.ids, second.ids)
	}
	// Otherwise the test proves nothing.
	if slices.Equal(first.buses, second.buses) || maps.Equal(first.nodes, second.nodes) {
		t.Errorf("the kernel detected the same buses %q or nodes %v twice; want others", first.buses, first.nodes)
	}
	t.Logf("the first controller has buses %q and %q; nodes %v and %v", first.buses, second.buses, first.nodes, second.nodes)
}
