package vm

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// Device is a device to plug in.
type Device struct {
	// Driver is QEMU's name of the device, "usb-serial".
	Driver string
	// Bus is its bus, "usb0.0" for the first bus of the controller usb0.
	Bus string
	// Port is the port of a USB bus, "1.2" the second one of a hub in port 1.
	Port string
	// Serial is the serial number of a USB device; empty is none.
	Serial string
}

// Plugged is a device that is plugged in.
type Plugged struct {
	Device
	m  *Machine
	id string
	in bool
}

// Plug plugs in a device, and unplugs it at the end of the test. It does not wait for the
// kernel.
func (m *Machine) Plug(t testing.TB, d Device) *Plugged {
	t.Helper()
	m.mu.Lock()
	p := &Plugged{Device: d, m: m, id: fmt.Sprintf("d%d", len(m.plugged)), in: true}
	m.plugged = append(m.plugged, p)
	m.mu.Unlock()
	properties := map[string]any{"driver": d.Driver, "id": p.id, "bus": d.Bus}
	if d.Port != "" {
		properties["port"] = d.Port
		properties["serial"] = d.Serial
	}
	maps.Copy(properties, m.backend(t, d.Driver, p.id))
	if err := m.qmp.run("device_add", properties); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Pull(t) })
	return p
}

// Pull unplugs a device, a hub with everything below it. A second call does nothing.
func (p *Plugged) Pull(t testing.TB) {
	t.Helper()
	p.m.mu.Lock()
	in := p.in
	p.in = false
	for _, other := range p.m.plugged {
		if other.Bus == p.Bus && strings.HasPrefix(other.Port, p.Port+".") {
			other.in = false
		}
	}
	p.m.mu.Unlock()
	if !in {
		return
	}
	if err := p.m.qmp.run("device_del", map[string]any{"id": p.id}); err != nil {
		t.Fatal(err)
	}
}

// slotDelay is how long the kernel ignores a slot after turning off its power
// (remove_board in drivers/pci/hotplug/pciehp_ctrl.c): a second of the machine's clock,
// which on a busy host is behind the test's.
const slotDelay = 5 * time.Second

// WaitFree waits until the guest has released an unplugged card, and its slot takes
// another one.
func (p *Plugged) WaitFree(t testing.TB) {
	t.Helper()
	deadline := time.After(qmpLimit)
	for p.m.qmp.run("qom-get", map[string]any{"path": "/machine/peripheral/" + p.id, "property": "type"}) == nil {
		select {
		case <-deadline:
			t.Fatalf("%s in %s was not released within %v", p.Driver, p.Bus, qmpLimit)
		case <-time.After(50 * time.Millisecond):
		}
	}
	<-time.After(slotDelay)
}

// backend makes the host side of a device.
func (m *Machine) backend(t testing.TB, driver, id string) map[string]any {
	t.Helper()
	var err error
	properties := map[string]any{}
	switch driver {
	case "usb-serial":
		// Otherwise the device is only present while its other end is open.
		properties["always-plugged"] = true
		properties["chardev"] = id
		err = m.qmp.run("chardev-add", map[string]any{"id": id, "backend": map[string]any{"type": "null", "data": map[string]any{}}})
	case "usb-storage":
		properties["drive"] = id
		err = m.qmp.run("blockdev-add", map[string]any{"driver": "null-co", "node-name": id, "size": 1 << 20, "read-zeroes": true})
	case "usb-audio":
		properties["audiodev"] = "silence"
	}
	if err != nil {
		t.Fatal(err)
	}
	return properties
}
