package matchers_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/matchers"
)

const (
	canA = "usb:1d50:606f:CAN-A-77"
	canB = "usb:1d50:606f:CAN-B-78"
	cdi  = "\ncontainer.cdi = true\n"
	// stays is the reason of an interface that no container gets.
	stays = " without container.cdi: it stays on the host, and no container gets it"
)

func TestNetworkInterfaces(t *testing.T) {
	t.Parallel()
	tell(t, []story{
		{name: "interfaces alone, by their hardware", toml: `match.net = { type = "can" }` + cdi,
			want: []string{"x: netif:vcan0 net vcan0", "x: " + canA + " net can0", "x: " + canB + " net can1"}},
		{name: "each node", toml: "each = \"node\"\n" + `match.net = { name = "can*" }` + cdi,
			want: []string{"x: " + canA + ":if00:net net can0", "x: " + canB + ":if00:net net can1"}},
		{name: "without cdi nothing moves", toml: `match.net = { name = "can0" }` + "\ncontainer.env.IF = \"${net.name} ${net.type} ${usb.serial}\"",
			want: []string{"x: " + canA}, notes: []string{}},
		{name: "two interfaces of one function are one device", toml: `match = { net = {}, driver = "mlx5_core" }` + "\n" + `exclude.net = { name = "ens1f1" }` + cdi,
			want: []string{"x: 0000:3b:00.0 net ens1f0 net ens1f0p1"}},
		{name: "an exclude takes out the one interface", toml: `match = { net = {}, driver = "mlx5_core" }` + "\n" + `exclude.net = { name = ["ens1f1", "*p1"] }` + cdi,
			want: []string{"x: 0000:3b:00.0 net ens1f0"}},
		{name: "an exclude by hardware", toml: `match.net = { type = "can" }` + "\nexclude.usb = {}" + cdi, want: []string{"x: netif:vcan0 net vcan0"}},
		{name: "hardware without its interface is excluded by that", toml: `match.pci = { id = "15b3:*" }` + "\n" + `exclude.net = { name = "ens1f1" }` + cdi,
			want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0"}},
		{name: "with pci: nodes and interfaces", toml: `match = { pci = { id = "15b3:*" }, net = { name = "*p1" } }` + cdi,
			want: []string{"x: 0000:3b:00.0 /dev/infiniband/uverbs0 net ens1f0p1"}},
		{name: "with usb", toml: `match = { usb = { serial = "CAN-B*" }, net = {} }` + cdi, want: []string{"x: " + canB + " /dev/bus/usb/001/003 /dev/ttyACM0 net can1"}},
		{name: "with a glob it is a condition", toml: `match = { net = { name = "can*" }, glob = "/dev/ttyACM*" }` + "\ncontainer.path = \"/dev/${net.name}\"" + cdi,
			want: []string{"x: " + canB + " /dev/ttyACM0>/dev/can1"}},
		{name: "a condition that does not hold", toml: `match = { net = { name = "can0" }, glob = "/dev/ttyACM*" }` + cdi},
		{name: "no such interface", toml: `match = { pci = { id = "15b3:*" }, net = { name = "eth*" } }` + cdi},
		{name: "attributes and driver of the interface", toml: `match = { net = { type = "can" }, driver = "gs_usb", attr = { dev_port = "0" } }` + "\n" + `exclude.attr = { serial = "CAN-B*" }` + cdi,
			want: []string{"x: " + canA + " net can0"}},
		{name: "renamed", toml: `match.net = { name = "can1" }` + "\ncontainer.net_name = \"can0\"" + cdi, want: []string{"x: " + canB + " net can1>can0"},
			notes: []string{`test.toml: resource 1 ("x"): match 1: net.name with container.net_name: when the pod ends, the interface returns under its name in the container, or as devN, and net.name may not find it any more`}},
		{name: "two of one name", toml: `match.net = { name = "ens1f0*" }` + "\ncontainer.net_name = \"eth0\"" + cdi,
			want: []string{"x: 0000:3b:00.0 net ens1f0>eth0 net ens1f0p1>eth0 !ens1f0 and ens1f0p1 would both be called eth0 in the container: use a variable in container.net_name"}},
		{name: "a name that the kernel does not take", toml: `match.net = { name = "can0" }` + "\ncontainer.net_name = \"can-${usb.serial}-${net.type}\"" + cdi,
			want: []string{`x: ` + canA + ` net can0>can-CAN-A-77-can !container.net_name of can0: "can-CAN-A-77-can" is not a valid name of a network interface: use 1 to 15 characters without space, "/" and ":"`}},
		{name: "in use", toml: `match.net = { name = "ens1f1" }` + cdi,
			want: []string{"x: 0000:3b:00.1 net ens1f1 !ens1f1 is in use by the host, and is never moved: it is a port of bridge br0"}},
		{name: "one of two in use", toml: `match.net = { name = "ens1f*" }` + cdi,
			want: []string{"x: 0000:3b:00.0 net ens1f0 net ens1f0p1", "x: 0000:3b:00.1 net ens1f1 !ens1f1 is in use by the host, and is never moved: it is a port of bridge br0"},
			notes: []string{
				`test.toml: resource 1 ("x"): device "0000:3b:00.1" can't be allocated: ens1f1 is in use by the host, and is never moved: it is a port of bridge br0`,
			}},
		{name: "in use and not moved", toml: `match.net = { name = "ens1f1" }`, want: []string{"x: 0000:3b:00.1"}},
		{name: "in use and wanted", toml: `match = { net = { name = "ens1f1" }, dangerous = true }` + cdi, opts: func(o *matchers.Options) { o.Allow.Dangerous = true },
			want: []string{"x: 0000:3b:00.1 net ens1f1 !ens1f1 is in use by the host, and is never moved: it is a port of bridge br0"}},
		{name: "nothing is offered by two", toml: `
[[resource]]
name = "port1"
each = "node"
match.net = { name = "ens1f0p1" }
[[resource]]
name = "rest"
each = "node"
match = { net = {}, driver = "mlx5_core" }
[[resource]]
name = "rdma"
match = { pci = { id = "15b3:*" }, glob = "/dev/infiniband/*" }
[[resource]]
name = "card"
match = { pci = { id = "15b3:*" }, net = {} }`,
			want: []string{"port1: 0000:3b:00.0:net.1", "rest: 0000:3b:00.0:net", "rest: 0000:3b:00.1:net", "rdma: 0000:3b:00.0 /dev/infiniband/uverbs0"},
			notes: []string{
				`test.toml: resource 1 ("port1"): network interface ens1f0p1` + stays,
				`test.toml: resource 2 ("rest"): not offered here, because test.toml: resource 1 ("port1") has it: network interface ens1f0p1`,
				`test.toml: resource 2 ("rest"): network interface ens1f0` + stays,
				`test.toml: resource 3 ("rdma"): RDMA nodes (/dev/infiniband/uverbs0) without container.cdi: programs find these nodes by their names, and a container that restarts after their numbers have changed finds them under the old names`,
				`test.toml: resource 4 ("card"): not offered here, because test.toml: resource 3 ("rdma") has it: PCI function 0000:3b:00.0`,
				`test.toml: resource 4 ("card"): not offered here, because test.toml: resource 2 ("rest") has it: PCI function 0000:3b:00.1`,
			}},
	})
}

// A virtual function is also selected by the interface name of its physical one.
func TestPhysicalFunctionByInterface(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddNet(h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "8086", Device: "1572", Class: "020000", TotalVFs: 8}), sysfstest.Net{Name: "ens1f0"})
	for i, address := range []string{"0000:3b:02.0", "0000:3b:02.1"} {
		h.AddPCI(sysfstest.PCI{Address: address, Vendor: "8086", Device: "154c", Class: "020000", PF: "0000:3b:00.0", VF: i})
	}
	snap := scan(t, h.Tree)
	for pf, want := range map[string]int{`"ens1f0"`: 2, `"ens1*"`: 2, `"0000:3b:00.0"`: 2, `"ens2f0"`: 0, `"!ens1f0"`: 1, `["ens*", "!0000:3b:00.0"]`: 0, `["eth0", "0000:3b:*"]`: 2} {
		if got := offers(t, snap, "match.pci.pf = "+pf); len(got) != want {
			t.Errorf("pf = %s: %q, want %d", pf, sayAll(got), want)
		}
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	for toml, want := range map[string][2]bool{
		`match.glob = "/dev/fuse"`:                           {},
		`match.net = {}`:                                     {true, false},
		"match.pci = {}\nexclude.net = {}":                   {true, false},
		`match.pci.pf = "ens1f0"`:                            {true, false},
		`match.pci.pf = ["0000:3b:00.0", "ens*"]`:            {true, false},
		"match.pci = {}\nhealth.link = true":                 {true, false},
		`match.pci.pf = "0000:3b:00.*"`:                      {},
		"match.pci = {}\nexclude.pci.pf = \"ens1f0\"":        {true, false},
		"match.pci = {}\ncontainer.env.IF = \"${net.name}\"": {true, false},
		"match.pci = {}\neach = \"net.name\"":                {true, false},
		`match.cdi_device = "nvidia.com/gpu=*"`:              {false, true},
	} {
		cfg := parse(t, toml)
		if got := [2]bool{matchers.UsesNets(cfg), matchers.UsesCDIDevices(cfg)}; got != want {
			t.Errorf("%s: interfaces, CDI devices: %v, want %v", toml, got, want)
		}
	}
}
