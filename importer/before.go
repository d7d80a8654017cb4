package importer

import (
	"path"
	"regexp"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// Device is a device of a resource on a host.
type Device struct {
	Resource string // with its domain
	Slots    int
	Nodes    []string // "/dev/ttyUSB0", or "HOST>CONTAINER" at another path
}

// Host is what other plugins see of a host.
type Host struct {
	snap  *device.Snapshot
	paths []string          // of nodes, links and directories below /dev, sorted
	nodes map[string]string // path of a node or link: the node
}

// NewHost is the host of a snapshot.
func NewHost(snap *device.Snapshot) *Host {
	h := &Host{snap: snap, nodes: make(map[string]string)}
	for _, n := range snap.Nodes {
		h.nodes[n.Path] = n.Path
	}
	for _, l := range snap.Links {
		h.nodes[l.Path] = l.Node.Path
	}
	for p := range h.nodes {
		h.paths = append(h.paths, p)
	}
	h.paths = append(h.paths, snap.Dirs...)
	sort.Strings(h.paths)
	return h
}

// Before lists the devices that the other plugin offers on a host by its own rules, as far
// as they are known here: for generic-device-plugin and smarter-device-manager.
func (r *Result) Before(h *Host) (devices []Device) {
	for _, of := range r.before {
		devices = append(devices, of(h)...)
	}
	return devices
}

// at lists the nodes of a path, which are in the container at another one: of a node,
// a link, or all in a directory.
func (h *Host) at(p, container string) (nodes []string) {
	if node, ok := h.nodes[p]; ok {
		return []string{NodeText(node, container)}
	}
	for _, n := range h.snap.Nodes {
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

// smarterBefore are the devices of an entry: each path that the expression matches
// (findDevicesPattern in main.go of smarter-device-manager).
func smarterBefore(domain, expression string, slots int) func(*Host) []Device {
	return func(h *Host) (devices []Device) {
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

// before are the devices of a group: the i-th matches of its paths, sorted, are one, and so
// is all that usb selects (discoverPath and discoverUSB of generic-device-plugin).
func (g squatGroup) before(name string) func(*Host) []Device {
	return func(h *Host) (devices []Device) {
		var found [][]string // for each path, absent ones left out
		var paths []squatPath
		length, most := 0, 1<<30
		for _, p := range g.paths {
			var matches []string
			for _, at := range h.paths {
				if ok, _ := path.Match(p.Path, at); ok {
					matches = append(matches, at)
				}
			}
			if p.match.As != "" || len(matches) == 0 && p.Optional {
				continue
			}
			found, paths = append(found, matches), append(paths, p)
			length, most = max(length, len(matches)), min(most, len(matches)*max(p.Limit, 1))
		}
		for i := range min(length, most) {
			var nodes []string
			for k, p := range paths {
				at := found[k][i%len(found[k])]
				container := at
				if p.MountPath != "" {
					if container = p.MountPath; strings.HasSuffix(container, "/") {
						container += path.Base(at)
					}
				}
				nodes = append(nodes, h.at(at, container)...)
			}
			devices = append(devices, Device{Resource: name, Slots: g.count, Nodes: nodes})
		}
		var nodes []string
		for _, u := range g.usb {
			for _, hw := range h.snap.Hardware {
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
			devices = append(devices, Device{Resource: name, Slots: g.count, Nodes: nodes})
		}
		return devices
	}
}
