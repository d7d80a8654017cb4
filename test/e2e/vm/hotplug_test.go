package vm

import "testing"

// The hardware of the machine for TestHotplug, and its addresses in Linux.
//
//	usb0 usb1 usb2   xHCI controllers with four ports, 0000:00:04.0 to 06.0
//	slot0            a PCI Express slot, empty
//	pxb1             a host bridge of NUMA node 1 with two slots: usb3, a fourth
//	                 controller, and a network card
var hotplugHardware = []string{
	"-device", "qemu-xhci,id=usb0,bus=pcie.0,addr=0x4",
	"-device", "qemu-xhci,id=usb1,bus=pcie.0,addr=0x5",
	"-device", "qemu-xhci,id=usb2,bus=pcie.0,addr=0x6",
	"-device", "pcie-root-port,id=slot0,bus=pcie.0,addr=0x9,chassis=1,slot=1",
	"-device", "pxb-pcie,id=pxb1,bus=pcie.0,addr=0x8,bus_nr=0x40,numa_node=1",
	"-device", "pcie-root-port,id=slot1,bus=pxb1,addr=0x0,chassis=2,slot=2",
	"-device", "pcie-root-port,id=slot2,bus=pxb1,addr=0x1,chassis=3,slot=3",
	"-device", "qemu-xhci,id=usb3,bus=slot1",
	"-device", "e1000e,bus=slot2",
	"-audiodev", "none,id=silence",
}

const (
	usb0 = "0000:00:04.0"
	usb1 = "0000:00:05.0"
	usb2 = "0000:00:06.0"
	usb3 = "0000:41:00.0"
	card = "0000:42:00.0"
)

// controllers are the addresses of the controllers by the names of their buses.
var controllers = map[string]string{"usb0.0": usb0, "usb1.0": usb1, "usb2.0": usb2, "usb3.0": usb3}

func TestHotplug(t *testing.T) {
	m := Boot(t, hotplugHardware...)
	m.Load(t, "usb", "storage", "sound", "net")
	for _, c := range []struct {
		name string
		run  func(*testing.T, *Machine)
	}{
		{"a dongle keeps its ID in another port", keepsIDInAnotherPort},
		{"equal dongles without serials are identified by their ports", identifiedByPorts},
		{"a placeholder is no serial", placeholderIsNoSerial},
		{"a second device with the same serial takes no ID", duplicateTakesNoID},
		{"a hub is unplugged and plugged in with its devices", hubHotplug},
		{"a restarted container finds its moved dongle", linkFollows},
		{"a disk is healthy when its last node is there", diskComplete},
		{"a sound device is healthy when its last node is there", soundComplete},
		{"a device plugged in during the start is allocated with all nodes", soundAtStart},
		{"a card is unplugged and plugged in again", cardHotplug},
		{"a card without its driver is unhealthy until the driver is back", cardLosesDriver},
		{"a dongle without its driver is unhealthy until the driver is back", dongleLosesDriver},
		{"devices have the NUMA node of their controller or slot", numaNode},
		{"a recorded machine has the same devices on another host", recordedMachine},
		{"an idle node costs nothing", idleCostsNothing},
		{"a dongle is listed in milliseconds", listedInMilliseconds},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, m) })
	}
}
