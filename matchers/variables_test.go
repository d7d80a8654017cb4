package matchers_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

func TestVariables(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	const (
		one  = `match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }`
		two  = `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB*" }`
		gpu  = `match = { pci = {}, driver = "i915", glob = "/dev/dri/card*" }`
		fuse = `match.glob = "/dev/fuse"`
	)
	for _, tc := range []struct {
		match, text string
		want        string // a problem if it starts with "!"
	}{
		{one, "${id}", "usb:0403:6001:A10K5XYZ"},
		{one, "${index}/${count}", "${index}/${count}"},
		{one, "${resource} ${RESOURCE} ${RESOURCE_KUBEVIRT}", "example.com/x-y EXAMPLE_COM_X_Y EXAMPLE_COM_X-Y"},
		{one, "${devnode} ${kernel} ${container_path}", "/dev/ttyUSB0 ttyUSB0 /dev/at${index}/ttyUSB0"},
		{two, "${devnode} ${kernel} ${container_path}", "/dev/ttyUSB2,/dev/ttyUSB3 ttyUSB2,ttyUSB3 /dev/at${index}/ttyUSB2,/dev/at${index}/ttyUSB3"},
		{one, "${node_name}", "worker-1"},
		{one, "${1}", "0"},
		{two, "${1}", "2,3"},
		{one, "${usb.id} ${usb.vendor} ${usb.product} ${usb.serial}", "0403:6001 0403 6001 A10K5XYZ"},
		{one, "${usb.manufacturer} ${usb.product_name} ${usb.class} ${usb.speed}", "FTDI FT232R USB UART 00 12"},
		{one, "${usb.port} ${usb.path} ${usb.interface} ${usb.interface_class}", "1-2.1 0000:00:14.0:2.1 0 ff"},
		{two, "${usb.interface} ${usb.interface_class}", "0,1 ff"},
		{gpu, "${pci.id} ${pci.vendor} ${pci.device} ${pci.subsystem_id}", "8086:3e92 8086 3e92 1043:8694"},
		{gpu, "${pci.class} ${pci.revision} ${driver} ${pci.address} ${pci.slot}", "030000 00 i915 0000:00:02.0 0000:00:02"},
		{gpu, "${pci.iommu_group} ${pci.sriov}", "0 none"},
		{gpu, "$${x}", "${x}"},

		{two, "${usb.serial}", `!container.env.X: ${usb.serial} has no value for USB device 1-2.4 ("Dual RS232-HS")`},
		{gpu, "${usb.serial}", "!container.env.X: ${usb.serial} has no value for PCI function 0000:00:02.0"},
		{gpu, "${pci.pf}", "!container.env.X: ${pci.pf} has no value for PCI function 0000:00:02.0"},
		{gpu, "${numa}", "!container.env.X: ${numa} has no value for PCI function 0000:00:02.0"},
		{one, "${pci.address}", `!container.env.X: ${pci.address} has no value for USB device 1-2.1 ("FT232R USB UART")`},
		{fuse, "${pci.address}", "!container.env.X: ${pci.address} has no value for /dev/fuse"},
	} {
		t.Run(tc.match+" "+tc.text, func(t *testing.T) {
			t.Parallel()
			cfg := parse(t, "[[resource]]\nname = \"x-y\"\ncontainer.path = \"/dev/at${index}/\"\n"+tc.match+"\ncontainer.env.X = \""+tc.text+"\"")
			o := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}, NodeName: "worker-1"}).Resources[0].Offers[0]
			if problem, ok := strings.CutPrefix(tc.want, "!"); ok {
				if o.Problem != problem {
					t.Errorf("problem = %q, want %q", o.Problem, problem)
				}
				if len(o.Env) != 1 {
					t.Errorf("%d entries, want as many as the configuration has", len(o.Env))
				}
				return
			}
			if got := o.Env[0].Value.String(); got != tc.want || o.Problem != "" {
				t.Errorf("value = %q, want %q (problem %q)", got, tc.want, o.Problem)
			}
		})
	}
	cfg := parse(t, "match.pci = { address = \"0000:00:1f.3\" }\nexclude.glob = \"/dev/snd/pcm*\"\ncontainer.env.X = \"${node_name}\"")
	o := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}}).Resources[0].Offers[0]
	if want := "container.env.X: ${node_name} has no value: the name of the node is not known: set --node-name"; o.Problem != want {
		t.Errorf("problem = %q, want %q", o.Problem, want)
	}
}

// Every attribute has a variable. Where it is a key of matches as well, both have the same meaning:
// hardware is selected by the value of its variable.
func TestMatchesAndVariablesAgree(t *testing.T) {
	t.Parallel()
	ask := func(a device.Attribute, h *device.Hardware) {
		bus := a.Table
		key := a.Key
		snap := &device.Snapshot{Hardware: []*device.Hardware{h.Parent, h}, Nodes: h.Nodes, Nets: h.Nets}
		if h.Parent == nil {
			snap.Hardware = snap.Hardware[1:]
		}
		const toml = "\ncontainer.env.X = \"${BUS.KEY}\""
		variable := offers(t, snap, strings.NewReplacer("BUS", bus, "KEY", key).Replace("match.BUS = {}"+toml))
		value := variable[0].Env[0].Value.String()
		if variable[0].Problem != "" || value == "" {
			t.Errorf("%s.%s has no value: %s", bus, key, variable[0].Problem)
			return
		}
		if a.OnlyVariable {
			return
		}
		matching := strings.NewReplacer("BUS", bus, "KEY", key, "VALUE", value)
		if got := offers(t, snap, matching.Replace(`match.BUS = { KEY = "VALUE" }`)); len(got) != 1 {
			t.Errorf(`%s.%s = %q selects %d devices, want the one that has it`, bus, key, value, len(got))
		}
		if got := offers(t, snap, matching.Replace(`match.BUS = { KEY = "!VALUE" }`)); len(got) != 0 {
			t.Errorf(`%s.%s = "!%s" selects %d devices, want none`, bus, key, value, len(got))
		}
	}
	usb := stick(func(h *device.Hardware) { h.USB.Manufacturer, h.USB.ProductName = "Silicon Labs", "CP2102" }).Hardware[1]
	vf := &device.Hardware{Bus: device.PCIBus, Path: "devices/pci0000:3a/0000:3b:02.1", Name: "0000:3b:02.1", NUMA: -1, PCI: &device.PCI{
		Address: "0000:3b:02.1", Vendor: "8086", Device: "154c", SubVendor: "1028", SubDevice: "0000", Class: "020000", Revision: "02",
		Driver: "iavf", IOMMUGroup: "88", SRIOV: "vf", PF: "0000:3b:00.0", VF: 1}}
	part := &device.Hardware{Bus: device.MDevBus, Path: vf.Path + "/83b8f4f2", Name: "83b8f4f2", NUMA: -1, Parent: vf,
		MDev: &device.MDev{UUID: "83b8f4f2", Type: "nvidia-222", Name: "A40-1Q", IOMMUGroup: "30"}}
	nic := *vf
	nic.Nets = []*device.Node{{Path: "eth1", Kernel: "eth1", Type: device.NetInterface, SysPath: vf.Path + "/net/eth1", Subsystem: "net", Hardware: &nic, Interface: -1, Index: 0,
		Net: &device.Net{Driver: "iavf", Type: "ether"}}}
	that := map[string]*device.Hardware{"usb": usb, "pci": vf, "mdev": part, "net": &nic}
	for _, a := range device.Attributes() {
		ask(a, that[a.Table])
	}
}

// Strings of a stick are inserted into paths without adding elements.
func TestHostileSerial(t *testing.T) {
	t.Parallel()
	const toml = `
match = { usb = {}, glob = "/dev/ttyUSB*" }
container.path = "/dev/${usb.serial}"
with = [{ path = "/data/${usb.serial}", container_path = "/data" }]
container.env.SERIAL = "${usb.serial}"`
	for _, tc := range []struct {
		serial  string
		problem string // empty: none
	}{
		{serial: "A1B2C3"},
		{serial: "A 1"},
		{serial: "../../etc", problem: `${usb.serial} is "../../etc", which can't be part of a path`},
		{serial: "a/b", problem: "can't be part of a path"},
		{serial: "..", problem: "can't be part of a path"},
		{serial: "a\x1bb", problem: "control characters"},
	} {
		snap := stick(func(h *device.Hardware) { h.USB.Serial = tc.serial })
		o := offers(t, snap, toml)[0]
		switch {
		case tc.problem == "" && o.Problem != "":
			t.Errorf("serial %q: problem %q", tc.serial, o.Problem)
		case tc.problem == "":
		case !strings.Contains(o.Problem, tc.problem):
			t.Errorf("serial %q: problem = %q, want %q in it", tc.serial, o.Problem, tc.problem)
		case len(o.Nodes) > 0 || len(o.Mounts) > 0:
			t.Errorf("serial %q: %s", tc.serial, say(o))
		}
	}
}
