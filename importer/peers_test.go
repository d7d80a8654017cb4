package importer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/importer"
	"github.com/generic-dp/generic-dp/internal/sysfstest"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/matchers"
	"github.com/generic-dp/generic-dp/pattern"
)

// scan reads a host.
func scan(t *testing.T, tree sysfstest.Tree) (*device.Snapshot, matchers.Options) {
	t.Helper()
	snap, s := sysfstest.Scan(t, inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
	return snap, matchers.Options{NodeName: "worker-1", Host: host{s.Attributes(), s}}
}

// host has everything that a scan can read, and all files that are requested.
type host struct {
	*inventory.Attributes
	scanner *inventory.Scanner
}

// Attr reads again what could not be read in time, as serving does.
func (h host) Attr(dir, name string) ([]string, bool) {
	for {
		if values, unread := h.scanner.Attributes().Attr(dir, name); !unread {
			return values, false
		}
	}
}

func (host) Exists(string) bool                 { return true }
func (host) Glob(pattern.Values, *int) []string { return nil }

func recorded(t *testing.T, name string) (*device.Snapshot, matchers.Options) {
	t.Helper()
	return scan(t, sysfstest.Load(t, filepath.Join("..", "testdata", "machines", name+".txtar")))
}

// offered lists the devices of an imported configuration, sorted: "name: slots x
// nodes".
func offered(t *testing.T, input string, snap *device.Snapshot, opts matchers.Options) []string {
	t.Helper()
	result, err := importer.Convert("in", []byte(input), importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML})
	if err != nil {
		t.Fatalf("%v\n%s", err, result.TOML)
	}
	// Peers offer dangerous devices unconditionally.
	opts.Allow.Dangerous = true
	for _, r := range cfg.Resources {
		for i := range r.Match {
			r.Match[i].Dangerous = true
		}
	}
	matched := matchers.Match(cfg, snap, nil, opts)
	for _, n := range matched.Notes {
		if n.Error {
			t.Errorf("note: %s: %s", n.Place, n.Text)
		}
	}
	var lines []string
	for _, m := range matched.Resources {
		for _, o := range m.Offers {
			if o.Problem != "" {
				t.Errorf("%s: %s: %s", m.Name, o.ID, o.Problem)
			}
			var nodes []string
			for _, n := range o.Nodes {
				nodes = append(nodes, nodeText(n.HostPath, n.Path.String(), n.Permissions))
			}
			lines = append(lines, line(m.Name, o.Slots, nodes))
		}
	}
	slices.Sort(lines)
	return lines
}

// nodeText is "HOST[>CONTAINER]:PERMISSIONS".
func nodeText(host, container, permissions string) string {
	if container != host {
		host += ">" + container
	}
	return host + ":" + permissions
}

func line(name string, slots int, nodes []string) string {
	slices.Sort(nodes)
	return fmt.Sprintf("%s: %d x %s", name, slots, strings.Join(nodes, " "))
}

// The import offers the devices of smarter-device-manager, under the same names: each
// path below /dev that an expression matches is a resource (findDevicesPattern in its
// main.go).
func TestSmarterOffersTheSame(t *testing.T) {
	t.Parallel()
	const input = `
- {devicematch: "^snd$", nummaxdevices: 20}
- {devicematch: "^snd/control.[01]$", nummaxdevices: 2}
- {devicematch: "^fuse$", nummaxdevices: 150}
- {devicematch: "^net/tun$", nummaxdevices: 5}
- {devicematch: "^video[0-9]*$", nummaxdevices: 20}
- {devicematch: "^tty(USB|ACM|S)[0-9]+$", nummaxdevices: 1}
- {devicematch: "^(gpio(chip|mem)|i2c-|spidev)[0-9.]*$", nummaxdevices: 3}
- {devicematch: "^vc(hiq|sm.*)$", nummaxdevices: 4}
- {devicematch: "^dri/(card|renderD)\\d{1,3}$", nummaxdevices: 2}
- {devicematch: "^bus/usb/00[1-3]/[0-9]{3}$", nummaxdevices: 1}
- {devicematch: "(?i)^HIDRAW[^5-9a-z]$", nummaxdevices: 1}
- {devicematch: "^(kfd|vfio/vfio)$|^ng0n1$", nummaxdevices: 6}
- {devicematch: "^watchdog0?$", nummaxdevices: 2}
- {devicematch: "^tty[0-9]*$", nummaxdevices: 8}
- {devicematch: "^sd[a-c]+$", nummaxdevices: 8}
- {devicematch: "^(serial1|dri|hwrng)$", nummaxdevices: 7}
`
	var entries []struct {
		DeviceMatch   string `yaml:"devicematch"`
		NumMaxDevices int    `yaml:"nummaxdevices"`
	}
	if err := yaml.Unmarshal([]byte(input), &entries); err != nil {
		t.Fatal(err)
	}
	for _, machine := range []string{"desktop-xhci", "raspberry-pi-4", "server-two-socket"} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			snap, opts := recorded(t, machine)
			var want []string
			for _, e := range entries {
				expression := regexp.MustCompile(e.DeviceMatch)
				for _, p := range everything(snap) {
					name := strings.TrimPrefix(p, "/dev/")
					if !expression.MatchString(name) {
						continue
					}
					var nodes []string
					for host, at := range below(snap, p) {
						nodes = append(nodes, nodeText(host, at, "rw"))
					}
					want = append(want, line("smarter-devices/"+strings.ReplaceAll(name, "/", "_"), e.NumMaxDevices, nodes))
				}
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, offered(t, input, snap, opts)); diff != "" {
				t.Errorf("(-smarter-device-manager +imported):\n%s", diff)
			}
		})
	}
}

// Patterns cross directories, and links of udev give names.
func TestSmarterNames(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	controller := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330", Driver: "xhci_hcd"})
	h.AddRootHub(controller, 1, "480")
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "0658", Product: "0200", Interfaces: []sysfstest.Interface{{Class: "02", Nodes: []sysfstest.Node{{Name: "ttyUSB0", Subsystem: "tty"}}}}})
	h.AddNode("", sysfstest.Node{Name: "net/tun", Subsystem: "misc"})
	h.AddNode("", sysfstest.Node{Name: "spidev0.0", Subsystem: "spidev"})
	h.AddNode("", sysfstest.Node{Name: "dvb/adapter0/frontend0", Subsystem: "dvb"})
	h.AddLink("ttyUSB-Z-Stick-Gen5", "ttyUSB0")
	snap, opts := scan(t, h.Tree)
	for expression, want := range map[string][]string{
		`^ttyUSB.*$`:    {"ttyUSB-Z-Stick-Gen5: 1 x /dev/ttyUSB0:rw", "ttyUSB0: 1 x /dev/ttyUSB0:rw"},
		`ttyUSB`:        {"ttyUSB0: 1 x /dev/ttyUSB0:rw"},
		`^bus.*$`:       {"bus_usb_001_001: 1 x /dev/bus/usb/001/001:rw", "bus_usb_001_002: 1 x /dev/bus/usb/001/002:rw"},
		`^*tun$`:        {"net_tun: 1 x /dev/net/tun:rw"},
		`^spidev0\.0$`:  {"spidev0_0: 1 x /dev/spidev0.0:rw"},
		`^dvb/.*$`:      {"dvb_adapter0_frontend0: 1 x /dev/dvb/adapter0/frontend0:rw"},
		`^dvb/adapter0`: {"dvb_adapter0_frontend0: 1 x /dev/dvb/adapter0/frontend0:rw"},
	} {
		got := offered(t, "[{devicematch: '"+expression+"', nummaxdevices: 1}]", snap, opts)
		for i := range want {
			want[i] = "smarter-devices/" + want[i]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-smarter-device-manager +imported):\n%s", expression, diff)
		}
	}
}

// The import offers the devices of sriov-network-device-plugin, under the same names:
// each function in the first pool that selects it, without physical functions that have
// virtual ones.
func TestSRIOVOffersTheSame(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	pf := h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "8086", Device: "1572", Class: "020000", Driver: "i40e", TotalVFs: 64, IOMMUGroup: "21"})
	numVFs := filepath.Join(h.Sysfs(), pf, "sriov_numvfs")
	if err := os.WriteFile(numVFs, []byte("4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.1", Vendor: "8086", Device: "1572", Class: "020000", Driver: "i40e", TotalVFs: 64})
	if err := os.WriteFile(filepath.Join(h.Sysfs(), other, "sriov_numvfs"), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, driver := range []string{"iavf", "iavf", "vfio-pci", "vfio-pci"} {
		h.AddPCI(sysfstest.PCI{
			Address: fmt.Sprintf("0000:3b:02.%d", i), Vendor: "8086", Device: "154c", Class: "020000", Driver: driver,
			IOMMUGroup: fmt.Sprint(87 + i), PF: "0000:3b:00.0", VF: i,
		})
	}
	h.AddNode("", sysfstest.Node{Name: "vfio/vfio", Subsystem: "misc", Major: 10, Minor: 196})
	for _, group := range []string{"89", "90"} {
		h.AddNode("", sysfstest.Node{Name: "vfio/" + group, Subsystem: "vfio"})
	}
	h.AddNode("", sysfstest.Node{Name: "vhost-net", Subsystem: "misc"})
	h.AddNode("", sysfstest.Node{Name: "net/tun", Subsystem: "misc"})
	h.AddNode("", sysfstest.Node{Name: "infiniband/rdma_cm", Subsystem: "misc"})
	hca := h.AddPCI(sysfstest.PCI{Address: "0000:5e:00.0", Vendor: "15b3", Device: "1017", Class: "020700", Driver: "mlx5_core", Nodes: []sysfstest.Node{
		{Name: "infiniband/uverbs0", Subsystem: "infiniband_verbs"}, {Name: "infiniband/umad0", Subsystem: "infiniband_mad"}, {Name: "infiniband/issm0", Subsystem: "infiniband_mad"}, {Name: "ptp0", Subsystem: "ptp"},
	}})
	if err := os.WriteFile(filepath.Join(h.Sysfs(), hca, "infiniband_verbs/uverbs0/ibdev"), []byte("mlx5_0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// The class of a port does not say what it is set to; functions with vfio-pci have no
	// interface, but their physical one has.
	for i, link := range []int{1, 32} {
		address := fmt.Sprintf("0000:d8:00.%d", i)
		port := h.AddPCI(sysfstest.PCI{Address: address, Vendor: "15b3", Device: "101b", Class: "020700", Driver: "mlx5_core", TotalVFs: 4})
		h.AddNet(port, sysfstest.Net{Name: fmt.Sprintf("port%d", i), Type: link})
		h.AddPCI(sysfstest.PCI{
			Address: fmt.Sprintf("0000:d8:01.%d", i), Vendor: "15b3", Device: "101c", Class: "020700", Driver: "vfio-pci",
			IOMMUGroup: fmt.Sprint(95 + i), PF: address, VF: 0,
		})
		h.AddNode("", sysfstest.Node{Name: fmt.Sprintf("vfio/%d", 95+i), Subsystem: "vfio"})
	}
	h.AddPCI(sysfstest.PCI{Address: "0000:af:00.0", Vendor: "8086", Device: "0d90", Class: "120000", Driver: "dfl-pci"})
	snap, opts := scan(t, h.Tree)

	for _, test := range []struct {
		name, list string
		want       []string
	}{
		{
			"drivers and ranges", `[{"resourceName": "first", "selectors": {"drivers": ["iavf"], "rootDevices": ["0000:3b:00.0#1-9"]}},
				{"resourceName": "rest", "selectors": [{"vendors": ["8086"], "drivers": ["iavf", "i40e"]}]}]`,
			[]string{
				"intel.com/first: 0000:3b:02.1 []",
				"intel.com/rest: 0000:3b:00.1 []", // 00.0 has virtual functions in use
				"intel.com/rest: 0000:3b:02.0 []",
			},
		},
		{
			"vfio with vhost-net", `[{"resourceName": "dpdk", "resourcePrefix": "nic.example.com", "selectors": [{"drivers": ["vfio-pci"], "rootDevices": ["0000:3b:00.0"], "needVhostNet": true}]}]`,
			[]string{
				"nic.example.com/dpdk: 0000:3b:02.2 [/dev/vfio/89 /dev/vfio/vfio /dev/vhost-net /dev/net/tun]",
				"nic.example.com/dpdk: 0000:3b:02.3 [/dev/vfio/90 /dev/vfio/vfio /dev/vhost-net /dev/net/tun]",
			},
		},
		{
			"whatever the driver", `[{"resourceName": "vfs", "selectors": {"devices": ["154C"]}}]`,
			[]string{
				"intel.com/vfs: 0000:3b:02.0 []",
				"intel.com/vfs: 0000:3b:02.1 []",
				"intel.com/vfs: 0000:3b:02.2 [/dev/vfio/89 /dev/vfio/vfio]",
				"intel.com/vfs: 0000:3b:02.3 [/dev/vfio/90 /dev/vfio/vfio]",
			},
		},
		{
			"rdma", `[{"resourceName": "hca", "selectors": {"vendors": ["15b3", "8086"], "linkTypes": ["infiniband"], "isRdma": true}}]`,
			[]string{"intel.com/hca: 0000:5e:00.0 [/dev/infiniband/issm0 /dev/infiniband/umad0 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm]"},
		},
		{
			"links", `[{"resourceName": "eth", "selectors": {"devices": ["101b", "101c"], "linkTypes": ["ether"]}}, {"resourceName": "ib", "selectors": {"devices": ["101b", "101c"], "linkTypes": ["infiniband"]}}]`,
			[]string{
				"intel.com/eth: 0000:d8:00.0 []", "intel.com/eth: 0000:d8:01.0 [/dev/vfio/95 /dev/vfio/vfio]",
				"intel.com/ib: 0000:d8:00.1 []", "intel.com/ib: 0000:d8:01.1 [/dev/vfio/96 /dev/vfio/vfio]",
			},
		},
		{
			"accelerators", `[{"resourceName": "fpga", "deviceType": "accelerator", "selectors": {"drivers": ["dfl-pci"]}}, {"resourceName": "nic", "selectors": {"drivers": ["dfl-pci"]}}]`,
			[]string{"intel.com/fpga: 0000:af:00.0 []"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result, err := importer.Convert("in", []byte(`{"resourceList": `+test.list+"}"), importer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML})
			if err != nil {
				t.Fatalf("%v\n%s", err, result.TOML)
			}
			var got []string
			for _, m := range matchers.Match(cfg, snap, nil, opts).Resources {
				for _, o := range m.Offers {
					var nodes []string
					for _, n := range o.Nodes {
						nodes = append(nodes, n.HostPath)
					}
					got = append(got, fmt.Sprintf("%s: %s %v", m.Name, o.ID, nodes))
					if o.Problem != "" {
						t.Errorf("%s: %s: %s", m.Name, o.ID, o.Problem)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, result.TOML)
			}
		})
	}
}

// A set of different USB devices is one device of all of them, if all are there, and
// virt-launcher finds each by its bus and number.
func TestKubeVirtSet(t *testing.T) {
	t.Parallel()
	result, err := importer.Convert("in", []byte(`
usb:
- resourceName: kubevirt.io/set
  selectors: [{vendor: "46f4", product: "0001"}, {vendor: "46f5", product: "0002"}]
`), importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML})
	if err != nil {
		t.Fatalf("%v\n%s", err, result.TOML)
	}
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddRootHub(h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"}), 1, "480")
	add := func(port, vendor, product string) {
		dir := h.AddUSB(sysfstest.USB{Port: port, Vendor: vendor, Product: product})
		if err := os.WriteFile(filepath.Join(h.Sysfs(), dir, "busnum"), []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add("1-1", "46f4", "0001")
	offers := func() []device.Offer {
		snap, opts := scan(t, h.Tree)
		return matchers.Match(cfg, snap, nil, opts).Resources[0].Offers
	}
	if got := offers(); len(got) > 0 {
		t.Errorf("offers %v with one of two devices", got)
	}
	add("1-2", "46f5", "0002")
	got := offers()
	if len(got) != 1 || got[0].Problem != "" || len(got[0].Nodes) != 2 || got[0].Env[0].Key.String() != "USB_RESOURCE_KUBEVIRT_IO_SET" || got[0].Env[0].Value.String() != "1:2,1:3" {
		t.Errorf("offers %+v", got)
	}
}

// Pools of sub-functions are those of their ports, by number.
func TestSubFunctions(t *testing.T) {
	t.Parallel()
	const input = `{"resourceList": [
		{"resourceName": "p0", "deviceType": "auxNetDevice", "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"], "pfNames": ["enp6s0f0np0#88"], "auxTypes": ["sf"]}},
		{"resourceName": "p1", "deviceType": "auxNetDevice", "selectors": [{"pciAddresses": ["0000:06:00.1"], "isRdma": true}]},
		{"resourceName": "eth", "deviceType": "auxNetDevice", "selectors": [{"auxTypes": ["eth"]}]},
		{"resourceName": "whole", "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"]}}]}`
	result, err := importer.Convert("in", []byte(input), importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML})
	if err != nil {
		t.Fatalf("%v\n%s", err, result.TOML)
	}
	snap, opts := recorded(t, "mlx5-subfunctions")
	var got []string
	for _, m := range matchers.Match(cfg, snap, nil, opts).Resources {
		for _, o := range m.Offers {
			got = append(got, m.Name+" "+o.ID+" "+o.Problem)
		}
	}
	want := []string{"intel.com/p0 sf:0000:06:00.0:88 ", "intel.com/p1 sf:0000:06:00.1:88 ", "intel.com/whole 0000:06:00.0 ", "intel.com/whole 0000:06:00.1 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, result.TOML)
	}
}
