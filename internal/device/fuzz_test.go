package device

import (
	"slices"
	"strings"
	"testing"
)

// fuzzed makes hardware of any kind with one node or network interface, or a node or an interface
// without hardware.
func fuzzed(kind uint8, a, b, c, d, kernel, subsystem string, iface int8) (h *Hardware, n *Node, f Form) {
	f = SerialForm
	switch kind % 8 {
	case 0:
		h = usb(a, b, c, "0000:00:14.0", "1")
	case 1:
		h, f = usb(a, b, "", c, d), PortForm
		if h.USB.Controller == "" {
			h.USB.Controller = "none"
		}
		if h.USB.Chain == "" {
			h.USB.Chain = "1"
		}
		if kind >= 128 {
			superSpeedUSB(h)
		}
	case 2:
		h = pci(a)
		if a == "" {
			h = pci("none")
		}
	case 3:
		h = platform(a)
	case 4:
		return nil, &Node{Path: "/dev/" + a}, f
	case 5:
		h = mdev(a)
	case 6:
		return nil, &Node{Path: a, Type: NetInterface, Kernel: a}, f
	case 7:
		h = withNets(pci(a), netLeaf{kernel, b, int(iface), -1})
		if a == "" {
			h.Name, h.PCI.Address = "none", "none"
		}
		return h, h.Nets[0], f
	}
	n = &Node{Path: "/dev/x/" + kernel, Kernel: kernel, Subsystem: subsystem, Hardware: h, Interface: int(iface), Index: -1}
	h.Nodes = []*Node{n}
	return h, n, f
}

// identity is what HardwareID must distinguish.
func identity(h *Hardware, f Form) string {
	switch {
	case h.Bus != USBBus:
		return strings.Join([]string{string(h.Bus), h.Name}, "\x00")
	case f == SerialForm && strings.TrimSpace(h.USB.Serial) != "":
		return strings.Join([]string{"serial", h.USB.Vendor, h.USB.Product, strings.TrimSpace(h.USB.Serial)}, "\x00")
	}
	if Place(h) == "" {
		return strings.Join([]string{"path", h.USB.Vendor, h.USB.Product, h.Path}, "\x00")
	}
	speed := ""
	if isSuperSpeed(h.USB.Speed) {
		speed = "ss"
	}
	return strings.Join([]string{"port", h.USB.Vendor, h.USB.Product, h.USB.Controller, h.USB.Chain, speed}, "\x00")
}

// FuzzIDs: for any two devices, IDs are in the grammar and short enough, and different
// devices have different IDs.
func FuzzIDs(f *testing.F) {
	f.Add(uint8(0), "10c4", "ea60", "A1B2C3", "", "ttyUSB0", "tty", int8(0), uint8(1), "10c4", "ea60", "0000:00:14.0", "1.2", "ttyUSB0", "tty", int8(0))
	f.Add(uint8(0), "10c4", "ea60", "port", "", "bus0", "", int8(-1), uint8(4), "usb/10c4/ea60/port", "", "", "", "", "", int8(-1))
	f.Add(uint8(2), "0000:3b:00.0", "", "", "", "card0", "drm", int8(-1), uint8(4), "0000/3b/00.0", "", "", "", "", "", int8(-1))
	f.Add(uint8(3), "PNP0501:00", "", "", "", "ttyS0", "tty", int8(-1), uint8(3), "PNP0501", "", "", "", "00", "", int8(-1))
	f.Add(uint8(1), "a", "b", "PNP0D10:10", "1.2", "x", "", int8(-1), uint8(129), "a", "b", "PNP0D10", "10", "1.2", "block", int8(-1))
	f.Add(uint8(5), "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "", "", "", "12", "vfio", int8(-1), uint8(4), "mdev/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "", "", "", "", "", int8(-1))
	f.Add(uint8(6), "vcan0", "", "", "", "", "", int8(-1), uint8(4), "netif/vcan0", "", "", "", "", "", int8(-1))
	f.Add(uint8(7), "0000:3b:00.0", "", "", "", "eth0", "", int8(-1), uint8(4), "0000/3b/00.0/net", "", "", "", "", "", int8(-1))
	f.Add(uint8(0), "a", "b", "c-x0123456789", "", "cciss!c0d0", "block", int8(3), uint8(0), "a", "b", "c ", "", "sda1", "block", int8(3))
	f.Fuzz(func(t *testing.T, k1 uint8, a1, b1, c1, d1, n1, s1 string, i1 int8, k2 uint8, a2, b2, c2, d2, n2, s2 string, i2 int8) {
		h1, x, f1 := fuzzed(k1, a1, b1, c1, d1, n1, s1, i1)
		h2, y, f2 := fuzzed(k2, a2, b2, c2, d2, n2, s2, i2)
		ids := []string{NodeID(x, f1), NodeID(y, f2)}
		if h1 != nil {
			ids = append(ids, HardwareID(h1, f1))
		}
		if h2 != nil {
			ids = append(ids, HardwareID(h2, f2))
		}
		for _, id := range ids {
			if !ValidID(id) {
				t.Errorf("%q is not a valid ID", id)
			}
			if base, slot := SplitSlot(SlotID(id, 7)); base != id || slot != 7 {
				t.Errorf("slot 7 of %q is split into %q, %d", id, base, slot)
			}
		}
		if h1 != nil && h2 != nil {
			i1, i2 := identity(h1, f1), identity(h2, f2)
			if (HardwareID(h1, f1) == HardwareID(h2, f2)) != (i1 == i2) {
				t.Errorf("%q and %q: IDs %q and %q", i1, i2, HardwareID(h1, f1), HardwareID(h2, f2))
			}
			if i1 != i2 && NodeID(x, f1) == NodeID(y, f2) {
				t.Errorf("nodes of %q and %q: both %q", i1, i2, NodeID(x, f1))
			}
			if HardwareID(h1, f1) == NodeID(y, f2) || HardwareID(h2, f2) == NodeID(x, f1) {
				t.Errorf("hardware and node: %q", ids)
			}
		}
		if (h1 == nil) != (h2 == nil) && ids[0] == ids[1] {
			t.Errorf("node with and without hardware: both %q", ids[0])
		}
		if h1 == nil && h2 == nil && (ids[0] == ids[1]) != (x.Path == y.Path && x.Type == y.Type) {
			t.Errorf("%q and %q: IDs %q", x.Path, y.Path, ids)
		}
	})
}

// FuzzNodeKeys: for any two nodes of one hardware, keys are in the grammar and
// different.
func FuzzNodeKeys(f *testing.F) {
	f.Add("ttyUSB0", "tty", int8(0), 0, "ttyUSB1", "tty", int8(0), 0, uint8(0))
	f.Add("sda", "block", int8(0), -1, "sda1", "block", int8(0), -1, uint8(1))
	f.Add("x.1", "", int8(-1), 0, "x", "", int8(-1), 1, uint8(2))
	f.Add("0", strings.Repeat("0", 56), int8(-1), -31, "0", strings.Repeat("0", 56), int8(-1), 1, uint8(0))
	f.Add("6:0:1:0", "bsg", int8(-1), 1000, "vfio3", "vfio-dev", int8(-1), -1, uint8(1))
	f.Add("dsa!wq0.3", "dsa", int8(-1), -1, "watchdog", "misc", int8(-1), -1, uint8(2))
	f.Fuzz(func(t *testing.T, n1, s1 string, i1 int8, x1 int, n2, s2 string, i2 int8, x2 int, bus uint8) {
		h := []*Hardware{usb("10c4", "ea60", "A1B2C3", "0000:00:14.0", "1"), pci("0000:3b:00.0"), platform("a.b")}[bus%3]
		a := &Node{Path: "/dev/a/" + n1, Kernel: n1, Subsystem: s1, Hardware: h, Interface: int(i1), Index: x1}
		b := &Node{Path: "/dev/b/" + n2, Kernel: n2, Subsystem: s2, Hardware: h, Interface: int(i2), Index: x2}
		h.Nodes = []*Node{a, b}
		alone := NodeKeys(h)
		withNets(h, netLeaf{"a" + n1, s1, int(i1), x1}, netLeaf{"b" + n2, s2, int(i2), x2})
		keys := NodeKeys(h)
		h.Nodes, h.Nets = []*Node{b, a}, []*Node{h.Nets[1], h.Nets[0]}
		again := NodeKeys(h)
		if keys[a] != alone[a] || keys[b] != alone[b] {
			t.Errorf("%q and %q: depend on interfaces", keys[a], keys[b])
		}
		isUsed := map[string]bool{}
		for _, n := range append(h.Nets, a, b) {
			if isUsed[keys[n]] {
				t.Errorf("%q twice", keys[n])
			}
			isUsed[keys[n]] = true
			if !ValidID(keys[n]) || len(keys[n]) > maxKey {
				t.Errorf("%q is not a valid key", keys[n])
			}
			if keys[n] != again[n] {
				t.Errorf("%q and %q: depends on the order", keys[n], again[n])
			}
		}
	})
}

// ownedID makes the ID of a device that is not a node, and its identity.
func ownedID(kind uint8, a, b string) (id string, identity []string) {
	resource := func(s string) string { return "example.com/" + s }
	switch kind % 7 {
	case 0:
		return PoolID(a), []string{"all", a}
	case 1:
		return GroupID(a, b), []string{"group", a, b}
	case 2:
		kind, _, _ := strings.Cut(a, "=")
		return CDIDeviceID(kind + "=" + b), []string{"cdi", kind, b}
	case 3:
		return VirtualID(a, b), []string{"virtual", a, b}
	case 4:
		inner := HardwareID(pci("x"+b), PortForm)
		return SharedID(a, inner), []string{"shared", a, inner}
	case 5:
		inner := NodeID(&Node{Path: "/dev/" + b}, PortForm)
		return SharedID(resource(a), inner), []string{"shared", resource(a), inner}
	}
	return PathID("/" + a), []string{"path", a}
}

// FuzzOwnedIDs: for any two devices that are not nodes, and a node, IDs are in the
// grammar and different devices have different IDs.
func FuzzOwnedIDs(f *testing.F) {
	f.Add(uint8(0), "example.com/a", "", uint8(6), "all/example.com/a", "", "all/example.com/a")
	f.Add(uint8(1), "pci.slot", "0000:3b:00", uint8(1), "pci.slot:0000", "3b:00", "group/pci.slot/0000/3b/00")
	f.Add(uint8(2), "a.b/c", "d:e", uint8(2), "a.b/c/d", "e", "cdi/a.b/c/d/e")
	f.Add(uint8(3), "a.b/c", "d", uint8(4), "a.b/c", "d", "virtual/a.b/c/d")
	f.Add(uint8(5), "a", "b/c", uint8(5), "a/b", "c", "shared/example.com/a/b/c")
	f.Fuzz(func(t *testing.T, k1 uint8, a1, b1 string, k2 uint8, a2, b2, path string) {
		x, what := ownedID(k1, a1, b1)
		y, other := ownedID(k2, a2, b2)
		node := NodeID(&Node{Path: "/dev/" + path}, PortForm)
		for _, id := range []string{x, y} {
			if !ValidID(id) {
				t.Errorf("%q is not a valid ID", id)
			}
			if id == node {
				t.Errorf("%q is also the ID of /dev/%s", id, path)
			}
		}
		if (x == y) != slices.Equal(what, other) {
			t.Errorf("%q and %q: IDs %q and %q", what, other, x, y)
		}
	})
}
