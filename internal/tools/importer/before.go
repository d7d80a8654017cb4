package importer

import (
	"cmp"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Device is a device of a resource on a host.
type Device struct {
	Resource string // with its domain
	Slots    int
	Nodes    []string // "/dev/ttyUSB0", or "HOST>CONTAINER" at another path
}

// host is a host as other plugins see it.
type host struct {
	*device.Snapshot
	paths []string          // of nodes, links and directories below /dev, sorted
	nodes map[string]string // path of a node or link: the node
}

// Before lists the devices that the other plugin offers on a host by its own rules: for
// generic-device-plugin and smarter-device-manager only.
func (r *Result) Before(snap *device.Snapshot) (devices []Device) {
	h := &host{snap, slices.Clone(snap.Dirs), make(map[string]string)}
	for _, n := range snap.Nodes {
		h.nodes[n.Path] = n.Path
	}
	for _, l := range snap.Links {
		h.nodes[l.Path] = l.Node.Path
	}
	h.paths = slices.AppendSeq(h.paths, maps.Keys(h.nodes))
	sort.Strings(h.paths)
	for _, list := range r.before {
		devices = append(devices, list(h)...)
	}
	return devices
}

// at lists the nodes of a path p of a node, a link or a directory, which a container has at
// another path.
func (h *host) at(p, container string) (nodes []string) {
	if node, ok := h.nodes[p]; ok {
		return []string{NodeText(node, container)}
	}
	for _, n := range h.Snapshot.Nodes {
		if below, ok := strings.CutPrefix(n.Path, p+"/"); ok {
			nodes = append(nodes, NodeText(n.Path, container+"/"+below))
		}
	}
	return nodes
}

// NodeText is an element of Device.Nodes.
func NodeText(host, container string) string {
	if host == container {
		return host
	}
	return host + ">" + container
}

// smarterBefore lists the devices of an entry: each path that the expression matches
// (findDevicesPattern in main.go of smarter-device-manager).
func smarterBefore(domain, expression string, slots int) func(*host) []Device {
	return func(h *host) (devices []Device) {
		re := regexp.MustCompile(expression)
		for _, p := range h.paths {
			name := strings.TrimPrefix(p, "/dev/")
			if nodes := h.at(p, p); re.MatchString(name) && len(nodes) > 0 {
				devices = append(devices, Device{Resource: domain + smarterName(name), Slots: slots, Nodes: nodes})
			}
		}
		return devices
	}
}

// before lists the devices of a group: the i-th matches of its paths, sorted, are one, and
// all matches of usb are one (discoverPath and discoverUSB of generic-device-plugin).
func (g squatGroup) before(name string) func(*host) []Device {
	return func(h *host) (devices []Device) {
		var found [][]string // for each path, absent ones left out
		var paths []squatPath
		length, most := 0, math.MaxInt
		for _, p := range g.paths {
			matches := slices.DeleteFunc(slices.Clone(h.paths), func(at string) bool {
				ok, _ := path.Match(p.Path, at)
				return !ok
			})
			if p.match.As != "" || len(matches) == 0 && p.Optional {
				continue
			}
			found, paths = append(found, matches), append(paths, p)
			length, most = max(length, len(matches)), min(most, len(matches)*max(p.Limit, 1))
		}
		add := func(nodes []string) {
			devices = append(devices, Device{Resource: name, Slots: g.count, Nodes: nodes})
		}
		for i := range min(length, most) {
			var nodes []string
			for k, p := range paths {
				at := found[k][i%len(found[k])]
				container := cmp.Or(p.MountPath, at)
				if strings.HasSuffix(container, "/") {
					container += path.Base(at)
				}
				nodes = append(nodes, h.at(at, container)...)
			}
			add(nodes)
		}
		var nodes []string
		for _, u := range g.usb {
			for _, hw := range h.Hardware {
				if hw.USB == nil || hw.USB.Vendor != u.Vendor || hw.USB.Product != u.Product || u.Serial != "" && hw.USB.Serial != u.Serial {
					continue
				}
				for _, n := range hw.Nodes {
					if strings.HasPrefix(n.Path, "/dev/bus/usb/") {
						nodes = append(nodes, n.Path)
					}
				}
			}
		}
		if len(nodes) > 0 {
			add(nodes)
		}
		return devices
	}
}
