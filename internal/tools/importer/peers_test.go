package importer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/internal/tools/importer"
	"github.com/generic-dp/generic-dp/matchers"
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
func (h host) Attr(dir, name string, entries *int) ([]string, bool) {
	for {
		if values, unread := h.scanner.Attributes().Attr(dir, name, entries); !unread || *entries == 0 {
			return values, unread
		}
	}
}

func (host) Exists(string, *int) bool           { return true }
func (host) Glob(pattern.Values, *int) []string { return nil }

func recorded(t *testing.T, name string) (*device.Snapshot, matchers.Options) {
	t.Helper()
	return scan(t, sysfstest.Load(t, filepath.Join("../../..", "testdata", "machines", name+".txtar")))
}

// convert converts a configuration of another plugin.
func convert(t *testing.T, input string) (*importer.Result, *config.Config) {
	t.Helper()
	result, err := importer.Convert("in", []byte(input), importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML})
	if err != nil {
		t.Fatalf("%v\n%s", err, result.TOML)
	}
	return result, cfg
}

// offered lists the devices that the other plugin offers on a host, and the devices that the imported
// configuration offers, sorted: "name: slots x nodes".
func offered(t *testing.T, input string, snap *device.Snapshot, opts matchers.Options) (before, now []string) {
	t.Helper()
	result, cfg := convert(t, input)
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
	line := func(d importer.Device) string {
		slices.Sort(d.Nodes)
		return fmt.Sprintf("%s: %d x %s", d.Resource, d.Slots, strings.Join(d.Nodes, " "))
	}
	for _, d := range result.Before(snap, opts.Host.(host).Attributes) {
		before = append(before, line(d))
	}
	for _, m := range matched.Resources {
		for _, o := range m.Offers {
			if o.Problem != "" {
				t.Errorf("%s: %s: %s", m.Name, o.ID, o.Problem)
			}
			now = append(now, line(importer.Offered(m.Name, &o)))
		}
	}
	slices.Sort(before)
	slices.Sort(now)
	return before, now
}

// The import offers the devices of smarter-device-manager, under the same names.
func TestSmarterOffersTheSame(t *testing.T) {
	t.Parallel()
	const input = `
- {devicematch: "^snd$", nummaxdevices: 20}
- {devicematch: "^snd/control.[01]$", nummaxdevices: 2}
- {devicematch: "^fuse$", nummaxdevices: 150}
- {devicematch: "^net/tun$", nummaxdevices: 5}
- {devicematch: "^video[0-9]*$", nummaxdevices: 20}
- {devicematch: "^tty(USB|ACM|S)[0-9]+$", nummaxdevices: 1}
- {devicematch: "^(gpio(chip|mem)|i2c-)[0-9.]*$", nummaxdevices: 3}
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
	for _, machine := range []string{"desktop-xhci", "raspberry-pi-4", "server-two-socket"} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			snap, opts := recorded(t, machine)
			before, now := offered(t, input, snap, opts)
			if diff := cmp.Diff(before, now); diff != "" || len(before) == 0 {
				t.Errorf("(-smarter-device-manager +imported):\n%s", diff)
			}
		})
	}
}

// Directories are resources of all nodes in them, and links keep their names.
func TestSmarterDirectories(t *testing.T) {
	t.Parallel()
	snap, opts := recorded(t, "desktop-xhci")
	for _, expression := range []string{"^snd", "^snd/?.*", "^input/by-id/.*", "^serial/by-id/.*$", "^dri", "^net$|^net/tun$"} {
		before, now := offered(t, "[{devicematch: '"+expression+"', nummaxdevices: 3}]", snap, opts)
		before = slices.DeleteFunc(before, hasOtherName)
		now = slices.DeleteFunc(now, hasOtherName)
		if diff := cmp.Diff(before, now); diff != "" || len(before) == 0 {
			t.Errorf("%s: (-smarter-device-manager +imported):\n%s", expression, diff)
		}
	}
}

// hasOtherName is true for links whose names are too long for the API server or have
// characters that the names of resources lack, a difference that the import reports.
func hasOtherName(line string) bool {
	name, _, _ := strings.Cut(line, ":")
	return strings.Contains(line, "/by-path/") || len(name) >= len("smarter-devices/")+63
}

// The import offers the devices of generic-device-plugin: the same names, with the same
// nodes at the same paths.
func TestSquatOffersTheSame(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, machine, devices string }{
		{"globs and links", "desktop-xhci", `
- name: serial
  groups:
  - paths: [{path: "/dev/ttyUSB[^2-9]"}]
  - paths: [{path: "/dev/ttyS?", permissions: rw}]
  - paths: [{path: /dev/nothing}]
- name: cameras
  groups: [{count: 3, paths: [{path: "/dev/video*", mountPath: /dev/cameras/}]}]
- name: keyboard
  groups: [{paths: [{path: /dev/input/by-id/usb-Logitech_USB_Keyboard-event-kbd}]}]
- name: ftdi
  groups: [{paths: [{path: "/dev/serial/by-id/usb-FTDI_Dual*-if0?-port0"}]}]
- name: fuse
  groups: [{count: 100, paths: [{path: /dev/fuse, mountPath: /dev/fuse0}]}]`},
		{"links into a directory", "desktop-xhci", `
- name: links
  groups: [{paths: [{path: "/dev/serial/by-id/*", mountPath: /dev/serial/}]}]
- name: dots
  groups: [{paths: [{path: "/dev/serial/by-path/*-usb-0:2.?:1.0-port0", mountPath: /dev/}]}]
- name: fixed
  groups: [{paths: [{path: /dev/input/by-id/usb-Logitech_USB_Keyboard-event-kbd, mountPath: /dev/in/}]}]`},
		{"directory, shared with a group of several paths", "desktop-xhci", `
- name: sound
  groups: [{count: 10, paths: [{path: /dev/snd}]}]
- name: capture
  groups:
  - paths: [{path: /dev/snd/controlC0}, {path: /dev/snd/pcmC0D0c}]
  - paths: [{path: /dev/snd/controlC1, mountPath: /dev/snd/controlC0}, {path: /dev/snd/pcmC1D0c, mountPath: /dev/snd/pcmC0D0c}]
  - paths: [{path: /dev/snd/controlC2, mountPath: /dev/snd/controlC0}, {path: /dev/snd/pcmC2D0c, mountPath: /dev/snd/pcmC0D0c}]`},
		{"directories at another path", "desktop-xhci", `
- name: sound
  groups: [{paths: [{path: /dev/snd, mountPath: /dev/audio/}]}]
- name: gpu
  groups: [{paths: [{path: /dev/dri, mountPath: /dev/gpu}]}]
- name: disks
  groups: [{paths: [{path: "/dev/sg*"}, {path: /dev/input, mountPath: /dev/in/, limit: 9}]}]`},
		{"paired by hardware", "server-two-socket", `
- name: gpu
  groups: [{paths: [{path: "/dev/dri/card[12]", permissions: rw}, {path: "/dev/dri/renderD*", permissions: rw}, {path: /dev/kfd, permissions: rw, limit: 10}]}]`},
		{"optional members", "server-two-socket", `
- name: virt
  groups: [{count: 5, paths: [{path: /dev/fuse}, {path: /dev/net/tun, permissions: rw}, {path: /dev/kvm, optional: true}]}]
- name: absent
  groups: [{paths: [{path: /dev/kmsg}, {path: /dev/kvm}]}]
- name: either
  groups: [{paths: [{path: /dev/ttyS2, optional: true}, {path: /dev/ttyS9, optional: true}]}]`},
		{"companions", "desktop-xhci", `
- name: disks
  groups: [{paths: [{path: "/dev/sg*", permissions: r}, {path: /dev/loop-control, limit: 9}, {path: /dev/nothing, optional: true}]}]`},
		{"usb", "desktop-xhci", `
- name: stick
  groups: [{count: 2, usb: [{vendor: "10c4", product: ea60}]}]
- name: ftdi
  groups:
  - usb: [{vendor: "0403", product: "6001", serial: A10K5XYZ}]
  - usb: [{vendor: "0403", product: "6010"}]
- name: set
  groups: [{usb: [{vendor: "046d", product: "082d"}, {vendor: "046d", product: c31c}, {vendor: ffff, product: ffff}]}]
- name: mixed
  groups:
  - usb: [{vendor: "0403", product: "6001"}]
  - paths: [{path: "/dev/hidraw*"}]
- name: tty
  groups: [{paths: [{path: "/dev/ttyUSB*"}]}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			snap, opts := recorded(t, test.machine)
			input := "domain: example.com\ndevices:" + test.devices
			before, now := offered(t, input, snap, opts)
			if diff := cmp.Diff(before, now); diff != "" || len(before) == 0 {
				t.Errorf("(-generic-device-plugin +imported):\n%s", diff)
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
		`^ttyUSB.*$`:    {"ttyUSB-Z-Stick-Gen5: 1 x /dev/ttyUSB0>/dev/ttyUSB-Z-Stick-Gen5", "ttyUSB0: 1 x /dev/ttyUSB0"},
		`ttyUSB`:        {"ttyUSB0: 1 x /dev/ttyUSB0"},
		`^bus.*$`:       {"bus: 1 x /dev/bus/usb/001/002", "bus_usb: 1 x /dev/bus/usb/001/002", "bus_usb_001_001: 1 x /dev/bus/usb/001/001", "bus_usb_001_002: 1 x /dev/bus/usb/001/002"},
		`^*tun$`:        {"net_tun: 1 x /dev/net/tun"},
		`^spidev0\.0$`:  {"spidev0_0: 1 x /dev/spidev0.0"},
		`^dvb/.*$`:      {"dvb_adapter0_frontend0: 1 x /dev/dvb/adapter0/frontend0"},
		`^dvb/adapter0`: {"dvb_adapter0_frontend0: 1 x /dev/dvb/adapter0/frontend0"},
	} {
		_, got := offered(t, "[{devicematch: '"+expression+"', nummaxdevices: 1}]", snap, opts)
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
			result, cfg := convert(t, `{"resourceList": `+test.list+"}")
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
	_, cfg := convert(t, `
usb:
- resourceName: kubevirt.io/set
  selectors: [{vendor: "46f4", product: "0001"}, {vendor: "46f5", product: "0002"}]
`)
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

// Pools of sub-functions select them by their physical function and number.
func TestSubFunctions(t *testing.T) {
	t.Parallel()
	const input = `{"resourceList": [
		{"resourceName": "p0", "deviceType": "auxNetDevice", "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"], "pfNames": ["enp6s0f0np0#88"], "auxTypes": ["sf"]}},
		{"resourceName": "p1", "deviceType": "auxNetDevice", "selectors": [{"pciAddresses": ["0000:06:00.1"], "isRdma": true}]},
		{"resourceName": "eth", "deviceType": "auxNetDevice", "selectors": [{"auxTypes": ["eth"]}]},
		{"resourceName": "whole", "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"]}}]}`
	result, cfg := convert(t, input)
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
