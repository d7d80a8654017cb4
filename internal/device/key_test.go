package device

import (
	"maps"
	"math"
	"slices"
	"testing"
)

// keysOf returns the keys of h by the kernel's names.
func keysOf(h *Hardware) map[string]string {
	keys := make(map[string]string)
	for n, key := range NodeKeys(h) {
		keys[n.Kernel] = key
	}
	return keys
}

func TestKeysDoNotDependOnKernelNumbers(t *testing.T) {
	t.Parallel()
	stick := func() *Hardware { return usb("10c4", "ea60", "A1B2C3", "0000:00:14.0", "1") }
	tests := []struct {
		name          string
		before, after []leaf
	}{
		{"serial port", []leaf{{"ttyUSB0", "tty", 0, 0}}, []leaf{{"ttyUSB7", "tty", 0, 0}}},
		{"cameras cross ten", []leaf{{"video8", "video4linux", 0, -1}, {"video9", "video4linux", 0, -1}}, []leaf{{"video9", "video4linux", 0, -1}, {"video10", "video4linux", 0, -1}}},
		{"sound", []leaf{{"controlC0", "sound", 0, -1}, {"pcmC0D0c", "sound", 0, -1}, {"pcmC0D1c", "sound", 0, -1}},
			[]leaf{{"controlC10", "sound", 0, -1}, {"pcmC10D0c", "sound", 0, -1}, {"pcmC10D1c", "sound", 0, -1}}},
		{"disk and partitions", []leaf{{"sda", "block", 0, -1}, {"sda1", "block", 0, -1}, {"sda2", "block", 0, -1}},
			[]leaf{{"sdab", "block", 0, -1}, {"sdab1", "block", 0, -1}, {"sdab2", "block", 0, -1}}},
		{"two disks cross z", []leaf{{"sdy", "block", 0, -1}, {"sdz", "block", 0, -1}}, []leaf{{"sdz", "block", 0, -1}, {"sdaa", "block", 0, -1}}},
		{"flash with boot areas", []leaf{{"mmcblk0", "block", -1, -1}, {"mmcblk0boot0", "block", -1, -1}, {"mmcblk0boot1", "block", -1, -1}},
			[]leaf{{"mmcblk1", "block", -1, -1}, {"mmcblk1boot0", "block", -1, -1}, {"mmcblk1boot1", "block", -1, -1}}},
		{"read-only twin of a flash", []leaf{{"mtd0", "mtd", -1, -1}, {"mtd0ro", "mtd", -1, -1}}, []leaf{{"mtd3", "mtd", -1, -1}, {"mtd3ro", "mtd", -1, -1}}},
		{"modem", []leaf{{"wwan0at0", "wwan", -1, -1}, {"wwan0qmi0", "wwan", -1, -1}}, []leaf{{"wwan2at0", "wwan", -1, -1}, {"wwan2qmi0", "wwan", -1, -1}}},
		{"i2c keeps the 2 of its own name", []leaf{{"i2c-1", "i2c-dev", -1, -1}}, []leaf{{"i2c-12", "i2c-dev", -1, -1}}},
		{"tuner", []leaf{{"dvb0.frontend0", "dvb", 0, -1}, {"dvb0.frontend1", "dvb", 0, -1}}, []leaf{{"dvb1.frontend0", "dvb", 0, -1}, {"dvb1.frontend1", "dvb", 0, -1}}},
		{"virtio ports", []leaf{{"vport0p1", "virtio-ports", -1, -1}, {"vport0p2", "virtio-ports", -1, -1}}, []leaf{{"vport3p1", "virtio-ports", -1, -1}, {"vport3p2", "virtio-ports", -1, -1}}},
		{"SCSI devices of another host", []leaf{{"0:0:0:0", "bsg", 0, -1}, {"0:0:0:1", "bsg", 0, -1}, {"end_device-0:1", "bsg", -1, -1}},
			[]leaf{{"12:0:0:0", "bsg", 0, -1}, {"12:0:0:1", "bsg", 0, -1}, {"end_device-12:1", "bsg", -1, -1}}},
		{"queues", []leaf{{"dsa!wq0.0", "dsa", -1, -1}, {"dsa!wq0.11", "dsa", -1, -1}}, []leaf{{"dsa!wq12.0", "dsa", -1, -1}, {"dsa!wq12.11", "dsa", -1, -1}}},
		{"memory", []leaf{{"dax0.0", "dax", -1, -1}, {"dax0.1", "dax", -1, -1}}, []leaf{{"dax10.0", "dax", -1, -1}, {"dax10.1", "dax", -1, -1}}},
		{"disks that answer in another order", []leaf{{"sda", "block", -1, 1}, {"sda1", "block", -1, 1}, {"sdb", "block", -1, 1000}}, []leaf{{"sdb", "block", -1, 1}, {"sdb1", "block", -1, 1}, {"sda", "block", -1, 1000}}},
		{"VFIO", []leaf{{"12", "vfio", -1, -1}, {"vfio0", "vfio-dev", -1, -1}}, []leaf{{"7", "vfio", -1, -1}, {"vfio12", "vfio-dev", -1, -1}}},
		{"watchdog that is not the first one", []leaf{{"watchdog0", "watchdog", -1, -1}}, []leaf{{"watchdog1", "watchdog", -1, -1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before, after := keysOf(withNodes(stick(), tt.before...)), keysOf(withNodes(stick(), tt.after...))
			for i := range tt.before {
				if b, a := before[tt.before[i].kernel], after[tt.after[i].kernel]; a != b {
					t.Errorf("%s is %q, but as %s it is %q", tt.before[i].kernel, b, tt.after[i].kernel, a)
				}
			}
		})
	}
}

func TestKeyDoesNotDependOnSiblingsWhereTheKernelHasAnIndex(t *testing.T) {
	t.Parallel()
	all := []leaf{{"ttyUSB0", "tty", 0, 2}, {"ttyUSB1", "tty", 0, 0}, {"ttyUSB2", "tty", 0, 1}}
	whole := keysOf(withNodes(usb("9710", "7840", "", "0000:00:14.0", "1"), all...))
	for _, l := range all {
		alone := keysOf(withNodes(usb("9710", "7840", "", "0000:00:14.0", "1"), l))
		if alone[l.kernel] != whole[l.kernel] {
			t.Errorf("%s: %q alone, %q among its siblings", l.kernel, alone[l.kernel], whole[l.kernel])
		}
	}
}

func TestKeyDoesNotDependOnPartitions(t *testing.T) {
	t.Parallel()
	reader := func(leaves ...leaf) map[string]string {
		return keysOf(withNodes(usb("0bda", "0316", "", "0000:00:14.0", "1"), leaves...))
	}
	with := reader(leaf{"sdb", "block", 0, -1}, leaf{"sdb1", "block", 0, -1}, leaf{"sdc", "block", 0, -1}, leaf{"sdc1", "block", 0, -1})
	without := reader(leaf{"sdb", "block", 0, -1}, leaf{"sdc", "block", 0, -1}, leaf{"sdc1", "block", 0, -1})
	for _, n := range []string{"sdb", "sdc", "sdc1"} {
		if with[n] != without[n] {
			t.Errorf("%s: %q with sdb1, %q without it", n, with[n], without[n])
		}
	}
}

func TestKeysAreDifferentWithinHardware(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		leaves []leaf
		want   map[string]string
	}{
		{"same index twice", []leaf{{"ttyUSB0", "tty", 0, 0}, {"ttyUSB1", "tty", 0, 0}}, map[string]string{"ttyUSB0": "if00:ttyUSB", "ttyUSB1": "if00:ttyUSB.1"}},
		{"some without an index", []leaf{{"ttyUSB0", "tty", 0, -1}, {"ttyUSB1", "tty", 0, 0}}, map[string]string{"ttyUSB0": "if00:ttyUSB.1", "ttyUSB1": "if00:ttyUSB"}},
		{"absurd index", []leaf{{"ttyUSB0", "tty", 0, math.MaxInt}}, map[string]string{"ttyUSB0": "if00:ttyUSB"}},
		{"one stem after trimming", []leaf{{"apex0", "apex", -1, -1}, {"apex_0", "apex", -1, -1}}, map[string]string{"apex0": "apex", "apex_0": "apex-xcts0dpjp9p"}},
		{"a node that is called bus", []leaf{{"001", "usb", -1, -1}, {"bus0", "misc", -1, -1}}, map[string]string{"001": "bus", "bus0": "bus-x0jg2fp4p18"}},
		{"a stem that ends in a number", []leaf{{"spidev0.1", "spidev", -1, -1}, {"spidev1.1", "spidev", -1, -1}}, map[string]string{"spidev0.1": "spidev.1.0", "spidev1.1": "spidev.1.1"}},
		{"the old node of the first watchdog", []leaf{{"watchdog", "misc", -1, -1}, {"watchdog0", "watchdog", -1, -1}}, map[string]string{"watchdog": "watchdog.1", "watchdog0": "watchdog"}},
		{"interface in hexadecimal", []leaf{{"ttyACM0", "tty", 18, -1}}, map[string]string{"ttyACM0": "if12:ttyACM"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := keysOf(withNodes(usb("10c4", "ea60", "", "0000:00:14.0", "1"), tt.leaves...))
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestCopyOfANodeDoesNotTakeItsKey(t *testing.T) {
	t.Parallel()
	h := usb("10c4", "ea60", "", "0000:00:14.0", "1")
	copied := &Node{Path: "/dev/a-copy", Kernel: "ttyUSB0", Subsystem: "tty", Hardware: h, Interface: 0, Index: 0}
	own := &Node{Path: "/dev/ttyUSB0", Kernel: "ttyUSB0", Subsystem: "tty", Hardware: h, Interface: 0, Index: 0}
	h.Nodes = []*Node{copied, own}
	keys := NodeKeys(h)
	if keys[own] != "if00:ttyUSB" || keys[copied] == keys[own] || keys[copied] == "" {
		t.Errorf("keys: own %q, copy %q", keys[own], keys[copied])
	}
}

func TestUnlistedNodesHaveIDs(t *testing.T) {
	t.Parallel()
	n := &Node{Path: "/dev/ttyUSB0", Kernel: "ttyUSB0", Hardware: pci("0000:3b:00.0")}
	if got := NodeID(n, PortForm); !ValidID(got) || got == HardwareID(n.Hardware, PortForm) {
		t.Errorf("ID %q", got)
	}
}

func TestCompareNatural(t *testing.T) {
	t.Parallel()
	sorted := []string{"", "0", "00", "1", "2", "02", "10", "a", "a0", "a1", "a1::1", "a1::2", "a1::10", "a01", "a1b", "a2", "a10", "ab"}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, CompareNatural)
	slices.SortFunc(sorted, CompareNatural)
	if !slices.Equal(shuffled, sorted) {
		t.Errorf("the result depends on the initial order: %q and %q", shuffled, sorted)
	}
	for _, pair := range [][2]string{{"ttyUSB2", "ttyUSB10"}, {"a::2", "a::10"}, {"a", "a::1"}, {"0000:0a:00.0", "0000:3b:00.0"}} {
		if CompareNatural(pair[0], pair[1]) >= 0 || CompareNatural(pair[1], pair[0]) <= 0 {
			t.Errorf("%q is not before %q", pair[0], pair[1])
		}
	}
	for _, a := range sorted {
		for _, b := range sorted {
			if (CompareNatural(a, b) == 0) != (a == b) {
				t.Errorf("%q and %q are equal", a, b)
			}
		}
	}
}

func TestKeysOfInterfacesDoNotNameThem(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		before, after []netLeaf
		want          []string
	}{
		{"another name", []netLeaf{{"eth0", "", -1, 0}}, []netLeaf{{"enp24s0", "", -1, 0}}, []string{"net"}},
		{"two ports in another order", []netLeaf{{"eth0", "", -1, 0}, {"eth1", "", -1, 1}}, []netLeaf{{"lan9", "", -1, 0}, {"lan2", "", -1, 1}}, []string{"net", "net.1"}},
		{"the first port is absent", []netLeaf{{"eth1", "", -1, 1}}, []netLeaf{{"eth0", "", -1, 1}}, []string{"net.1"}},
		{"two devices below it with one index", []netLeaf{{"eth0", "virtio1/", -1, 0}, {"eth1", "virtio2/", -1, 0}}, []netLeaf{{"z", "virtio1/", -1, 0}, {"a", "virtio2/", -1, 0}}, []string{"net", "net.1"}},
		{"crossing ten", []netLeaf{{"lan9", "", -1, 0}, {"lan10", "", -1, 0}}, []netLeaf{{"lan8", "", -1, 0}, {"lan9", "", -1, 0}}, []string{"net", "net.1"}},
		{"USB interfaces", []netLeaf{{"wwan0", "", 4, 0}, {"wwan1", "", 8, 0}}, []netLeaf{{"wwan3", "", 4, 0}, {"wwan2", "", 8, 0}}, []string{"if04:net", "if08:net"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, leaves := range [][]netLeaf{tt.before, tt.after} {
				h := withNets(usb("0bda", "8153", "A1B2C3", "0000:00:14.0", "1"), leaves...)
				keys := NodeKeys(h)
				for i, n := range h.Nets {
					if keys[n] != tt.want[i] {
						t.Errorf("%s is %q, want %q", n.Path, keys[n], tt.want[i])
					}
				}
			}
		})
	}
}

func TestInterfaceDoesNotTakeTheKeyOfANode(t *testing.T) {
	t.Parallel()
	h := withNodes(withNets(pci("0000:3b:00.0"), netLeaf{"eth0", "", -1, 0}), leaf{"net3", "misc", -1, -1})
	keys := NodeKeys(h)
	if node, net := keys[h.Nodes[0]], keys[h.Nets[0]]; node != "net" || net == node || !ValidID(net) {
		t.Errorf("keys: node %q, interface %q", node, net)
	}
	renamed := withNodes(withNets(pci("0000:3b:00.0"), netLeaf{"lan", "", -1, 0}), leaf{"net3", "misc", -1, -1})
	if a, b := keys[h.Nets[0]], NodeKeys(renamed)[renamed.Nets[0]]; a != b {
		t.Errorf("%q, and %q under another name", a, b)
	}
}
