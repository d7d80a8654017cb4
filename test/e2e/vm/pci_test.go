package vm

import (
	"path"
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// nic is a resource of network cards.
const nic = "example.com/nic"

const nicConfig = `
domain = "example.com"
[[resource]]
name = "nic"
match = { pci = { id = "8086:10d3" }, driver = "e1000e" }
container.env.NIC = "${pci.address}"
`

func cardHotplug(t *testing.T, m *Machine) {
	m.Serve(t, nicConfig)
	m.Healthy(t, nic, card)
	plugged := m.Plug(t, Device{Driver: "e1000e", Bus: "slot0"})
	// The firmware numbers the slot: its address is the same in every boot.
	m.WaitFiles(t, "/sys/bus/pci/devices/0000:00:09.0/0000:*:00.0/driver", "driver")
	address := path.Base(path.Dir(path.Join("/sys", m.Only(t, "/sys/bus/pci/devices/0000:00:09.0/0000:*:00.0"), "driver")))
	m.Healthy(t, nic, card, address)
	if env := m.Allocate(t, "", nic, address).Env; env["NIC"] != address {
		t.Errorf("environment %q; want NIC=%s", env, address)
	}
	plugged.Pull(t)
	m.Want(t, wire.Want{Resource: nic, Healthy: []string{card}, Unhealthy: []string{address}})
	plugged.WaitFree(t)
	m.Plug(t, Device{Driver: "e1000e", Bus: "slot0"})
	m.Healthy(t, nic, card, address)
}

func cardLosesDriver(t *testing.T, m *Machine) {
	m.Serve(t, nicConfig)
	m.Healthy(t, nic, card)
	m.Write(t, "/sys/bus/pci/drivers/e1000e/unbind", card)
	t.Cleanup(func() { m.WaitFiles(t, "/sys/bus/pci/drivers/e1000e/"+card, card) })
	m.Want(t, wire.Want{Resource: nic, Unhealthy: []string{card}})
	m.Write(t, "/sys/bus/pci/drivers/e1000e/bind", card)
	m.Healthy(t, nic, card)
}

func numaNode(t *testing.T, m *Machine) {
	m.Serve(t, nicConfig+serialByDevice[len("\ndomain = \"example.com\"\n"):])
	near := m.Healthy(t, nic, card)
	if got := near.Devices[card].NUMA; !slices.Equal(got, []int64{1}) {
		t.Errorf("the card in a slot of node 1 has NUMA nodes %d; want 1", got)
	}
	m.Plug(t, Device{Driver: "usb-serial", Bus: "usb3.0", Port: "1", Serial: "FTALPHA"})
	m.Plug(t, dongle("1", "FTBRAVO"))
	list := m.Healthy(t, serial, bySerial("FTALPHA"), bySerial("FTBRAVO"))
	if got := list.Devices[bySerial("FTALPHA")].NUMA; !slices.Equal(got, []int64{1}) {
		t.Errorf("a dongle at a controller of node 1 has NUMA nodes %d; want 1", got)
	}
	// -1 in sysfs: unknown to the firmware.
	if got := list.Devices[bySerial("FTBRAVO")].NUMA; len(got) > 0 {
		t.Errorf("a dongle at a controller of no node has NUMA nodes %d; want none", got)
	}
	found := m.Devices(t)
	for _, d := range found[serial] {
		if want := list.Devices[d.ID].NUMA; len(want) != len(d.NUMA) {
			t.Errorf("generic-dp devices has NUMA nodes %d for %s; want %d", d.NUMA, d.ID, want)
		}
	}
}
