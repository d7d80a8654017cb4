package importer_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/device"
)

// squatConfig is the configuration of generic-device-plugin like in its own decoder.
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

// squatOffers lists the devices of generic-device-plugin by its rules: the i-th
// match of each path of a group, sorted, belongs to the i-th device; optional
// paths may be missing; everything that usb matches is one device (discoverPath
// and discoverUSB in its package deviceplugin).
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
						inDir := strings.TrimPrefix(at, matches[k][i])
						switch {
						case strings.HasSuffix(p.Mount, "/"):
							at = p.Mount + path.Base(matches[k][i]) + inDir
						case p.Mount != "":
							at = p.Mount + inDir
						}
						nodes = append(nodes, nodeText(host, at, permissions))
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
							nodes = append(nodes, nodeText(n.Path, n.Path, "rw"))
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

// below are the nodes of a path, with their paths in the container: itself, the target
// of a link, or all in a directory.
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
			want := squatOffers(t, input, snap)
			if len(want) == 0 {
				t.Fatal("nothing is offered")
			}
			if diff := cmp.Diff(want, offered(t, input, snap, opts)); diff != "" {
				t.Errorf("(-generic-device-plugin +imported):\n%s", diff)
			}
		})
	}
}
