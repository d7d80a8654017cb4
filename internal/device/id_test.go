package device

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "append new lines to the golden file")

// id is a line of the golden file: a device and its ID.
type id struct{ what, id string }

// leaf is a node for withNodes.
type leaf struct {
	kernel, subsystem string
	iface, index      int
}

// withNodes adds nodes to h. Nodes of the subsystem "usb" are bus nodes.
func withNodes(h *Hardware, leaves ...leaf) *Hardware {
	for _, l := range leaves {
		path := "/dev/" + l.kernel
		if l.subsystem == "usb" {
			path = "/dev/bus/usb/001/" + l.kernel
		}
		h.Nodes = append(h.Nodes, &Node{
			Path: path, Kernel: l.kernel, Subsystem: l.subsystem, Hardware: h, Interface: l.iface, Index: l.index,
		})
	}
	return h
}

// netLeaf is an interface for withNets: parent is its directory below the hardware.
type netLeaf struct {
	name, parent string
	iface, index int
}

// withNets adds network interfaces to h.
func withNets(h *Hardware, leaves ...netLeaf) *Hardware {
	for _, l := range leaves {
		h.Nets = append(h.Nets, &Node{
			Path: l.name, Type: NetInterface, Kernel: l.name, SysPath: h.Path + "/" + l.parent + "net/" + l.name, Subsystem: "net",
			Hardware: h, Interface: l.iface, Index: l.index, Net: &Net{Type: "ether"},
		})
	}
	return h
}

func mdev(uuid string) *Hardware {
	return &Hardware{Bus: MDevBus, Path: "devices/pci0000:00/0000:3b:00.0/" + uuid, Name: uuid, MDev: &MDev{UUID: uuid}}
}

func usb(vendor, product, serial, controller, chain string) *Hardware {
	return &Hardware{
		Bus: USBBus, Path: "devices/" + controller + "/usb1/1-" + chain, Name: "1-" + chain,
		USB: &USB{Vendor: vendor, Product: product, Serial: serial, Controller: controller, Chain: chain, Speed: "12"},
	}
}

func superSpeedUSB(h *Hardware) *Hardware {
	h.USB.Speed = "5000"
	return h
}

func rootHub(h *Hardware, name string) *Hardware {
	h.Name = name
	return h
}

func pci(address string) *Hardware {
	return &Hardware{Bus: PCIBus, Path: "devices/pci0000:00/" + address, Name: address, PCI: &PCI{Address: address}}
}

func platform(name string) *Hardware {
	return &Hardware{Bus: PlatformBus, Path: "devices/platform/" + name, Name: name}
}

// goldenIDs computes every ID of the golden file, in its order. Append new cases.
func goldenIDs() []id {
	var ids []id
	hw := func(what string, h *Hardware, f Form) {
		ids = append(ids, id{what, HardwareID(h, f)})
	}
	nodes := func(what string, h *Hardware, f Form) {
		for _, n := range h.Nodes {
			ids = append(ids, id{what + ", " + n.Kernel, NodeID(n, f)})
		}
	}
	bare := func(path string) {
		ids = append(ids, id{"node without hardware, " + path, NodeID(&Node{Path: path}, SerialForm)})
	}
	const pc = "0000:00:14.0"

	hw("PCI function", pci("0000:3b:00.0"), PortForm)
	hw("PCI function in a domain of five digits", pci("10000:01:00.0"), PortForm)
	hw("USB by serial", usb("10c4", "ea60", "A1B2C3", pc, "1.2"), SerialForm)
	hw("USB by port", usb("10c4", "ea60", "A1B2C3", pc, "1.2"), PortForm)
	hw("USB by port, no serial", usb("1a86", "7523", "", pc, "3"), SerialForm)
	hw("USB by port, SuperSpeed", superSpeedUSB(usb("8086", "0b07", "", pc, "2")), PortForm)
	hw("USB by port, platform controller", usb("1a86", "7523", "", "fe980000.usb", "1.4"), PortForm)
	hw("USB by port, ACPI controller", usb("1a86", "7523", "", "PNP0D10:00", "1"), PortForm)
	hw("USB root hub by port", rootHub(usb("1d6b", "0002", pc, pc, ""), "usb1"), PortForm)
	hw("USB, serial with spaces around", usb("0403", "6001", "  A50285BI ", pc, "1"), SerialForm)
	hw("USB, serial with a space inside", usb("0403", "6001", "A502 85BI", pc, "1"), SerialForm)
	hw("USB, serial with colons", usb("303a", "1001", "7C:DF:A1:E0:00:01", pc, "1"), SerialForm)
	hw("USB, serial port", usb("303a", "1001", "port", pc, "1"), SerialForm)
	hw("USB, serial like a hash part", usb("303a", "1001", "AB-x0123456789", pc, "1"), SerialForm)
	hw("USB, serial of 32 digits", usb("10c4", "ea60", "1c4f3a8e7dbeeb118ad1d3f9a29c855c", pc, "1"), SerialForm)
	hw("USB, serial of 60 digits", usb("10c4", "ea60", strings.Repeat("1c4f3a8e7d", 6), pc, "1"), SerialForm)
	hw("USB, serial of no letter", usb("10c4", "ea60", "序列号", pc, "1"), SerialForm)
	hw("USB, place unknown", usb("1a86", "7523", "", "", ""), PortForm)
	hw("platform", platform("fe201000.serial"), PortForm)
	hw("platform, ACPI name", platform("ARMH0011:00"), PortForm)
	hw("platform, colon in the name", platform("soc:fb"), PortForm)

	stick := withNodes(usb("10c4", "ea60", "A1B2C3", pc, "1.2"), leaf{"005", "usb", -1, -1}, leaf{"ttyUSB1", "tty", 0, 0})
	nodes("serial stick", stick, SerialForm)
	nodes("serial stick by port", stick, PortForm)
	nodes("stick with 32 digits", withNodes(usb("10c4", "ea60", "1c4f3a8e7dbeeb118ad1d3f9a29c855c", pc, "1"), leaf{"ttyUSB0", "tty", 0, 0}), SerialForm)
	nodes("four ports in one interface", withNodes(usb("9710", "7840", "", pc, "4"),
		leaf{"ttyUSB7", "tty", 0, 3}, leaf{"ttyUSB4", "tty", 0, 0}, leaf{"ttyUSB5", "tty", 0, 1}, leaf{"ttyUSB6", "tty", 0, 2}), PortForm)
	nodes("four interfaces", withNodes(usb("0403", "6011", "FT4XQZ1B", pc, "4"),
		leaf{"ttyUSB0", "tty", 0, 0}, leaf{"ttyUSB1", "tty", 1, 0}, leaf{"ttyUSB2", "tty", 2, 0}, leaf{"ttyUSB3", "tty", 3, 0}), SerialForm)
	nodes("camera", withNodes(usb("046d", "0825", "5A6F1B30", pc, "5"),
		leaf{"video2", "video4linux", 0, 0}, leaf{"video3", "video4linux", 0, 1}, leaf{"media1", "media", -1, -1},
		leaf{"controlC1", "sound", 2, -1}, leaf{"pcmC1D0c", "sound", 3, -1}), SerialForm)
	nodes("input device with two event nodes", withNodes(usb("046d", "c52b", "", pc, "6"),
		leaf{"event10", "input", 1, -1}, leaf{"event9", "input", 1, -1}, leaf{"hidraw0", "hidraw", 1, -1}), PortForm)
	nodes("card reader", withNodes(usb("0bda", "0316", "20120501030900000", pc, "7"),
		leaf{"sdb", "block", 0, -1}, leaf{"sdb1", "block", 0, -1}, leaf{"sdc", "block", 0, -1}, leaf{"sdc1", "block", 0, -1}), SerialForm)
	nodes("graphics card", withNodes(pci("0000:3b:00.0"), leaf{"card0", "drm", -1, -1}, leaf{"renderD128", "drm", -1, -1}), PortForm)
	nodes("NVMe", withNodes(pci("0000:01:00.0"), leaf{"nvme0", "nvme", -1, -1}, leaf{"nvme0n1", "block", -1, -1},
		leaf{"nvme0n1p2", "block", -1, -1}, leaf{"ng0n1", "nvme-generic", -1, -1}), PortForm)
	nodes("sound card", withNodes(pci("0000:00:1f.3"), leaf{"controlC0", "sound", -1, -1}, leaf{"pcmC0D0p", "sound", -1, -1},
		leaf{"pcmC0D0c", "sound", -1, -1}, leaf{"hwC0D2", "sound", -1, -1}), PortForm)
	nodes("platform UART", withNodes(platform("fe201000.serial"), leaf{"ttyAMA0", "tty", -1, -1}), PortForm)
	nodes("TPM", withNodes(platform("MSFT0101:00"), leaf{"tpm0", "tpm", -1, -1}, leaf{"tpmrm0", "tpmrm", -1, -1}), PortForm)
	nodes("names that the grammar can't hold", withNodes(pci("0000:05:00.0"), leaf{"cciss!c0d0", "block", -1, -1},
		leaf{"iio:device0", "iio", -1, -1}, leaf{"apex_0", "apex", -1, -1}, leaf{"12", "vfio", -1, -1}), PortForm)
	nodes("long kernel name", withNodes(usb("10c4", "ea60", "1c4f3a8e7dbeeb118ad1d3f9a29c855c", pc, "1"),
		leaf{"a-driver-with-a-name-that-goes-on-and-on3", "misc", 2, 1}), SerialForm)
	bare("/dev/fuse")
	bare("/dev/net/tun")
	bare("/dev/cpu/0/msr")
	bare("/dev/usb/foo")
	bare("/dev/net:tun")
	bare("/dev/mapper/vg0-a_lv.1")
	bare("/dev/" + strings.Repeat("deep/", 12) + "node")
	bare("/dev/_hidden/.x")
	ids = append(ids, id{"slot 0", SlotID("0000:3b:00.0", 0)}, id{"slot 3", SlotID("0000:3b:00.0", 3)})

	nodes("VFIO function", withNodes(pci("0000:01:00.0"), leaf{"12", "vfio", -1, -1}, leaf{"vfio3", "vfio-dev", -1, -1}), PortForm)
	nodes("VFIO function without IOMMU", withNodes(pci("0000:01:00.0"), leaf{"noiommu-12", "vfio", -1, -1}), PortForm)
	nodes("InfiniBand card", withNodes(pci("0000:05:00.0"), leaf{"uverbs1", "infiniband_verbs", -1, -1}, leaf{"umad2", "infiniband_mad", -1, -1},
		leaf{"umad3", "infiniband_mad", -1, -1}, leaf{"issm2", "infiniband_mad", -1, -1}), PortForm)
	nodes("ATA controller", withNodes(pci("0000:00:17.0"), leaf{"sdb", "block", -1, 1}, leaf{"sdb1", "block", -1, 1}, leaf{"sda", "block", -1, 3},
		leaf{"sg1", "scsi_generic", -1, 1}, leaf{"3:0:0:0", "bsg", -1, 1}), PortForm)
	nodes("SAS controller", withNodes(pci("0000:02:00.0"), leaf{"sdc", "block", -1, 1000}, leaf{"6:0:1:0", "bsg", -1, 1000},
		leaf{"end_device-6:1", "bsg", -1, -1}, leaf{"sas_host6", "bsg", -1, -1}), PortForm)
	nodes("virtio console", withNodes(pci("0000:00:03.0"), leaf{"vport2p1", "virtio-ports", -1, -1}), PortForm)
	nodes("accelerator", withNodes(pci("0000:6a:01.0"), leaf{"dsa!wq0.3", "dsa", -1, -1}), PortForm)
	nodes("watchdog", withNodes(pci("0000:00:1f.0"), leaf{"watchdog", "misc", -1, -1}, leaf{"watchdog0", "watchdog", -1, -1}), PortForm)
	nodes("platform devices in the order of probing", withNodes(platform("fec00000.v3d"), leaf{"card1", "drm", -1, -1}, leaf{"renderD128", "drm", -1, -1},
		leaf{"video11", "video4linux", -1, 1}, leaf{"controlC2", "sound", -1, -1}, leaf{"event5", "input", -1, -1}, leaf{"iio:device0", "iio", -1, -1},
		leaf{"sda", "block", -1, 0}, leaf{"mmcblk0", "block", -1, -1}), PortForm)

	nets := func(what string, h *Hardware, f Form) {
		for _, n := range h.Nets {
			ids = append(ids, id{what + ", " + n.Path, NodeID(n, f)})
		}
	}
	nets("network card of two ports", withNets(pci("0000:18:00.0"), netLeaf{"enp24s0np1", "", -1, 1}, netLeaf{"eth7", "", -1, 0}), PortForm)
	nets("CAN adapter", withNets(usb("1d50", "606f", "0123ABCD", pc, "2"), netLeaf{"can0", "1-2:1.0/", 0, 0}, netLeaf{"can1", "1-2:1.0/", 0, 1}), SerialForm)
	nets("virtio card", withNets(pci("0000:00:05.0"), netLeaf{"eth0", "virtio1/", -1, 0}), PortForm)
	nets("network of a board", withNets(platform("fd580000.ethernet"), netLeaf{"end0", "", -1, 0}), PortForm)
	for _, name := range []string{"vcan0", "veth1a2b@if3", "br-lan", "wg0"} {
		ids = append(ids, id{"interface without hardware, " + name, NodeID(&Node{Path: name, Type: NetInterface, Kernel: name, Index: -1, Interface: -1}, PortForm)})
	}
	const uuid = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"
	hw("mediated device", mdev(uuid), PortForm)
	nodes("mediated device", withNodes(mdev(uuid), leaf{"14", "vfio", -1, -1}), PortForm)
	for _, path := range []string{"/dev/mdev", "/dev/shared", "/dev/all/x", "/dev/group/x/y", "/dev/cdi/a/b/c", "/dev/virtual/a/b/c", "/dev/shared/a/b/c", "/dev/path/x", "/dev/netif/vcan0", "/dev/mdev/x"} {
		bare(path)
	}
	owned := func(what, text string) { ids = append(ids, id{what, text}) }
	owned("pool", PoolID("example.com/cameras"))
	owned("pool of a resource with a long name", PoolID("devices.factory.example.com/cameras-of-the-welding-line"))
	owned("group by slot", GroupID("pci.slot", "0000:3b:00"))
	owned("group by serial", GroupID("usb.serial", "A1B2C3"))
	owned("group by serial with a space", GroupID("usb.serial", "A1 B2"))
	owned("group by attribute", GroupID("attr:phys_switch_id", "5c6b3a"))
	owned("CDI device", CDIDeviceID("nvidia.com/gpu=0"))
	owned("CDI device, UUID", CDIDeviceID("nvidia.com/gpu=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"))
	owned("CDI device, colons", CDIDeviceID("nvidia.com/mig=0:1"))
	owned("virtual device", VirtualID("example.com/licence", "lic-0"))
	owned("virtual device, space in the name", VirtualID("example.com/licence", "lic 0"))
	owned("shared function", SharedID("example.com/gpu", "0000:3b:00.0"))
	owned("shared device by port", SharedID("example.com/zigbee", "usb:1a86:7523:port:0000:00:14.0:3"))
	owned("socket", PathID("/var/run/docker.sock"))
	owned("hidden directory", PathID("/opt/.cache"))
	owned("slot of a pool", SlotID(PoolID("example.com/cameras"), 12))
	bus := withNodes(platform("30a20000.i2c"), leaf{"i2c-2", "i2c-dev", -1, -1}, leaf{"i2c-3", "i2c-dev", -1, -1}, leaf{"gpiochip1", "gpio", -1, -1})
	bus.Nodes[1].Part = "mux-70.i2c-0"
	nodes("buses of a board", bus, PortForm)
	sensors := withNodes(platform("AMDI0010:00"), leaf{"iio:device0", "iio", -1, -1}, leaf{"iio:device1", "iio", -1, -1}, leaf{"iio:device2", "iio", -1, -1})
	sensors.Nodes[0].Part = "SMO9210-00.lsm6dsm"
	sensors.Nodes[1].Part = "accel_3d"
	sensors.Nodes[2].Part = "accel_3d"
	nodes("sensors", sensors, PortForm)
	nodes("disk of a channel", withNodes(platform("0.0.1234"), leaf{"dasdb", "block", -1, -1}, leaf{"dasdb1", "block", -1, -1}), PortForm)
	shared := withNodes(pci("0000:02:00.0"), leaf{"nvme0n1", "block", -1, -1}, leaf{"nvme0n1p2", "block", -1, -1}, leaf{"ng0n1", "nvme-generic", -1, -1})
	for _, n := range shared.Nodes {
		n.Namespace = "uuid.6f9a2c1e-58d0-4b7e-9a43-0d2b8c6e1f70"
	}
	nodes("namespace of two controllers", shared, PortForm)
	shared.Nodes = shared.Nodes[1:2]
	shared.Nodes[0].Namespace = "nvme.144d-53354e4b4e4730523330303030-53414d53554e47-00000001"
	nodes("namespace without an identifier of its own", shared, PortForm)
	bare("/dev/nvme/x")
	owned("CDI device, name", CDIDeviceName("nvidia.com/gpu=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"))
	sf := &Hardware{Bus: PCIBus, Name: "mlx5_core.sf.4", PCI: &PCI{Address: "mlx5_core.sf.4", SRIOV: "sf", PF: "0000:06:00.0", VF: 88}}
	hw("sub-function", sf, PortForm)
	nodes("sub-function", withNodes(sf, leaf{"uverbs2", "infiniband_verbs", -1, -1}), PortForm)
	hw("sub-function without a number", &Hardware{Bus: PCIBus, Name: "ice.sf.4", PCI: &PCI{SRIOV: "sf", PF: "0000:06:00.0", VF: -1}}, PortForm)
	bare("/dev/sf")
	bare("/dev/sf/0000:06:00.0/88")
	camera := usb("04f2", "b7c0", "01.00.00", "0000:00:14.0", "7")
	hw("USB device with a version for its serial", camera, Forms(nil).Of(camera))
	light := withNodes(platform("HID-SENSOR-200041"), leaf{"iio:device0", "iio", -1, -1})
	light.Nodes[0].Part = "als"
	nodes("sensor of a hub without hardware", light, PortForm)
	return ids
}

// TestGoldenIDs pins the format of IDs. The kubelet's checkpoints, CDI specs and links
// on every node contain IDs. A line therefore never changes: the file is append-only.
func TestGoldenIDs(t *testing.T) {
	t.Parallel()
	const file = "testdata/ids.golden"
	text, err := os.ReadFile(file)
	if err != nil && !(*update && os.IsNotExist(err)) {
		t.Fatal(err)
	}
	got := goldenIDs()
	sc := bufio.NewScanner(bytes.NewReader(text))
	n := 0
	for ; sc.Scan(); n++ {
		what, want, ok := strings.Cut(sc.Text(), "\t")
		if !ok {
			t.Fatalf("%s:%d: %q has no tab", file, n+1, sc.Text())
		}
		if n >= len(got) {
			t.Errorf("%s:%d: %q is no longer computed: IDs are an API, keep every case", file, n+1, what)
			continue
		}
		if got[n].what != what {
			t.Fatalf("%s:%d: case %q instead of %q of the file: append new cases", file, n+1, got[n].what, what)
		}
		if got[n].id != want {
			t.Errorf("%s:%d: %s: ID is now %q, was %q: IDs are an API, a line never changes", file, n+1, what, got[n].id, want)
		}
	}
	if n >= len(got) {
		return
	}
	if !*update {
		t.Fatalf("%s has %d of %d cases: run go test -update to append the rest", file, n, len(got))
	}
	for _, line := range got[n:] {
		text = fmt.Appendf(text, "%s\t%s\n", line.what, line.id)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFormOfAUSBDevice(t *testing.T) {
	t.Parallel()
	real := usb("10c4", "ea60", "A1B2C3", "0000:00:14.0", "1")
	placeholder := usb("10c4", "ea60", "0001", "0000:00:14.0", "2")
	none := usb("1a86", "7523", "", "0000:00:14.0", "3")
	if got := (Forms)(nil).Of(real); got != SerialForm {
		t.Errorf("usable serial: %q", got)
	}
	for _, h := range []*Hardware{placeholder, none, pci("0000:3b:00.0"), nil} {
		if got := (Forms)(nil).Of(h); got != PortForm {
			t.Errorf("no usable serial: %q", got)
		}
	}
	if got := (Forms{real: PortForm}).Of(real); got != PortForm {
		t.Errorf("decided: %q", got)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"0000:3b:00.0", "usb:10c4:ea60:A1B2C3", "a"} {
		for _, slot := range []int{0, 1, 2, 10, MaxSlots - 1} {
			s := SlotID(id, slot)
			if base, k := SplitSlot(s); base != id || k != slot {
				t.Errorf("SplitSlot(%q) = %q, %d", s, base, k)
			}
		}
	}
	if got := len(SlotID(strings.Repeat("a", MaxID), MaxSlots-1)); got != MaxSlotID {
		t.Errorf("longest slot ID has %d characters, want %d", got, MaxSlotID)
	}
	for _, id := range []string{"", "::1", "a::", "a::0", "a::01", "a::-1", "a::x", "a:1"} {
		if base, k := SplitSlot(id); base != id || k != 0 {
			t.Errorf("SplitSlot(%q) = %q, %d", id, base, k)
		}
	}
}
