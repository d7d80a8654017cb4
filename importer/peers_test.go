package importer_test

import (
	"fmt"
	"os"
	"path"
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
)

// scan reads a host.
func scan(t *testing.T, tree sysfstest.Tree) (*device.Snapshot, matchers.Options) {
	t.Helper()
	s := inventory.New(inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()})
	for {
		snap, err := s.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if snap.Again {
			continue
		}
		attrs := s.Attributes()
		return snap, matchers.Options{NodeName: "worker-1", Attr: attrs.Attr, Driver: attrs.Driver}
	}
}

func recorded(t *testing.T, name string) *device.Snapshot {
	t.Helper()
	snap, _ := scan(t, sysfstest.Load(t, filepath.Join("..", "testdata", "machines", name+".txtar")))
	return snap
}

// offered is what an imported configuration offers, one line for each device:
// "name: slots x nodes", sorted. Nodes are "HOST[>CONTAINER]:PERMISSIONS".
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
				nodes = append(nodes, handed(n.HostPath, n.Path.String(), n.Permissions))
			}
			lines = append(lines, line(m.Name, o.Slots, nodes))
		}
	}
	slices.Sort(lines)
	return lines
}

// handed is a node as it is handed over.
func handed(host, container, permissions string) string {
	if container != host {
		host += ">" + container
	}
	return host + ":" + permissions
}

func line(name string, slots int, nodes []string) string {
	slices.Sort(nodes)
	return fmt.Sprintf("%s: %d x %s", name, slots, strings.Join(nodes, " "))
}

// squatConfig is the configuration of generic-device-plugin as its own
// decoder has it.
type squatConfig struct {
	Domain  string
	Devices []struct {
		Name   string
		Groups []struct {
			Count int
			Paths []struct {
				Path, Permissions string
				Mount             string `yaml:"mountPath"`
				Limit             int
				Optional          bool
			}
			USB []struct{ Vendor, Product, Serial string }
		}
	}
}

// squatOffers is what generic-device-plugin offers by its rules: the i-th of
// what each path of a group matches, sorted, forms the i-th device; what is
// optional and missing is left out; all that usb matches is one device
// (discoverPath and discoverUSB in its package deviceplugin).
func squatOffers(t *testing.T, input string, snap *device.Snapshot) []string {
	t.Helper()
	var c squatConfig
	if err := yaml.Unmarshal([]byte(input), &c); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range c.Devices {
		for _, g := range d.Groups {
			matches := make([][]string, len(g.Paths))
			length, most := 0, 1<<30
			for i, p := range g.Paths {
				found := globbed(snap, p.Path)
				if len(found) == 0 && p.Optional {
					continue
				}
				for range max(p.Limit, 1) {
					matches[i] = append(matches[i], found...)
				}
				length, most = max(length, len(found)), min(most, len(matches[i]))
			}
			for i := range min(length, most) {
				var nodes []string
				for k, p := range g.Paths {
					if len(matches[k]) == 0 {
						continue
					}
					permissions := "rwm"
					if p.Permissions != "" {
						permissions = p.Permissions
					}
					for host, at := range below(snap, matches[k][i]) {
						switch {
						case strings.HasSuffix(p.Mount, "/"):
							at = p.Mount + path.Base(at)
						case p.Mount != "":
							at = p.Mount
						}
						nodes = append(nodes, handed(host, at, permissions))
					}
				}
				lines = append(lines, line(c.Domain+"/"+d.Name, max(g.Count, 1), nodes))
			}
			var nodes []string
			for _, u := range g.USB {
				for _, h := range snap.Hardware {
					if h.USB == nil || h.USB.Vendor != u.Vendor || h.USB.Product != u.Product || u.Serial != "" && h.USB.Serial != u.Serial {
						continue
					}
					for _, n := range h.Nodes {
						if strings.HasPrefix(n.Path, "/dev/bus/usb/") {
							nodes = append(nodes, handed(n.Path, n.Path, "rw"))
						}
					}
				}
			}
			if len(nodes) > 0 {
				lines = append(lines, line(c.Domain+"/"+d.Name, max(g.Count, 1), nodes))
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// everything lists the paths below /dev: nodes, links to them, directories.
func everything(snap *device.Snapshot) []string {
	all := slices.Clone(snap.Dirs)
	for _, n := range snap.Nodes {
		all = append(all, n.Path)
	}
	for _, l := range snap.Links {
		all = append(all, l.Path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func globbed(snap *device.Snapshot, pattern string) (found []string) {
	for _, p := range everything(snap) {
		if ok, _ := path.Match(pattern, p); ok {
			found = append(found, p)
		}
	}
	return found
}

// below is the nodes that a path stands for, with their paths in the
// container: itself, where a link leads to, or all in a directory.
func below(snap *device.Snapshot, p string) map[string]string {
	nodes := map[string]string{}
	for _, l := range snap.Links {
		if l.Path == p {
			nodes[l.Node.Path] = p
		}
	}
	for _, n := range snap.Nodes {
		if n.Path == p || strings.HasPrefix(n.Path, p+"/") {
			nodes[n.Path] = n.Path
		}
	}
	return nodes
}

// What generic-device-plugin offers on a machine is offered under the same
// names, with the same nodes at the same paths.
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
- name: fuse
  groups: [{count: 100, paths: [{path: /dev/fuse, mountPath: /dev/fuse0}]}]`},
		{"directory, shared with a group of several paths", "desktop-xhci", `
- name: sound
  groups: [{count: 10, paths: [{path: /dev/snd}]}]
- name: capture
  groups:
  - paths: [{path: /dev/snd/controlC0}, {path: /dev/snd/pcmC0D0c}]
  - paths: [{path: /dev/snd/controlC1, mountPath: /dev/snd/controlC0}, {path: /dev/snd/pcmC1D0c, mountPath: /dev/snd/pcmC0D0c}]
  - paths: [{path: /dev/snd/controlC2, mountPath: /dev/snd/controlC0}, {path: /dev/snd/pcmC2D0c, mountPath: /dev/snd/pcmC0D0c}]`},
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
			snap := recorded(t, test.machine)
			input := "domain: example.com\ndevices:" + test.devices
			want := squatOffers(t, input, snap)
			if len(want) == 0 {
				t.Fatal("nothing is offered, which is no test")
			}
			if diff := cmp.Diff(want, offered(t, input, snap, matchers.Options{})); diff != "" {
				t.Errorf("(-generic-device-plugin +imported):\n%s", diff)
			}
		})
	}
}

// What smarter-device-manager offers on a machine is offered under the same
// names: each path below /dev that an expression is found in is a resource
// (findDevicesPattern in its main.go).
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
			snap := recorded(t, machine)
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
						nodes = append(nodes, handed(host, at, "rw"))
					}
					want = append(want, line("smarter-devices/"+strings.ReplaceAll(name, "/", "_"), e.NumMaxDevices, nodes))
				}
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, offered(t, input, snap, matchers.Options{})); diff != "" {
				t.Errorf("(-smarter-device-manager +imported):\n%s", diff)
			}
		})
	}
}

// What sriov-network-device-plugin offers is offered under the same names: each
// function in the first pool that selects it, without physical functions whose
// virtual ones are in use.
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
	h.AddPCI(sysfstest.PCI{Address: "0000:5e:00.0", Vendor: "15b3", Device: "1017", Class: "020700", Driver: "mlx5_core", Nodes: []sysfstest.Node{
		{Name: "infiniband/uverbs0", Subsystem: "infiniband_verbs"}, {Name: "infiniband/umad0", Subsystem: "infiniband_mad"}, {Name: "ptp0", Subsystem: "ptp"},
	}})
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
			[]string{"intel.com/hca: 0000:5e:00.0 [/dev/infiniband/umad0 /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm]"},
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
