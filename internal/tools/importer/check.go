package importer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The devices of another plugin are computed by its own rules, from the same snapshot of the
// host, and not from our conversion: a comparison with the conversion would agree with itself.

// Device is a device of a resource on a host.
type Device struct {
	Resource string // with its domain
	Slots    int
	// ID names the device if its hardware does, such as the address of a PCI function.
	// Such devices are compared by ID, others by their nodes.
	ID    string
	Nodes []string // "/dev/ttyUSB0", or "HOST>CONTAINER" at another path
}

// Attributes reads sysfs; *inventory.Attributes does. Directories are relative to the root.
type Attributes interface {
	// Attr returns the values of an attribute, and none if there is no such attribute.
	// *entries limits the directory entries to read in search of it.
	Attr(dir, name string, entries *int) (values []string, unread bool)
	// Driver returns the driver of a directory, empty if it has none.
	Driver(dir string) string
}

// lister lists the devices that another plugin offers on a host.
type lister func(*host) []Device

// host is a host as other plugins see it.
type host struct {
	*device.Snapshot
	attributes Attributes
	// paths has all nodes, links and directories below /dev, in the order in which Go's ReadDir
	// and Glob return them.
	paths []string
	// nodes are the nodes by their path, and by the paths of links to them.
	nodes map[string]string
}

// Before lists the devices that the other plugin offers on a host by its own rules, except
// for the plugins in NotCompared.
func (r *Result) Before(snap *device.Snapshot, attributes Attributes) (devices []Device) {
	h := &host{
		Snapshot:   snap,
		attributes: attributes,
		nodes:      make(map[string]string),
	}
	for _, n := range snap.Nodes {
		h.nodes[n.Path] = n.Path
	}
	for _, l := range snap.Links {
		h.nodes[l.Path] = l.Node.Path
	}
	h.paths = slices.Concat(snap.Dirs, slices.Collect(maps.Keys(h.nodes)))
	slices.Sort(h.paths)
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
	for _, n := range h.Nodes {
		if below, ok := strings.CutPrefix(n.Path, p+"/"); ok {
			nodes = append(nodes, NodeText(n.Path, container+"/"+below))
		}
	}
	return nodes
}

// glob lists the paths that match a pattern of Go.
func (h *host) glob(glob string) (found []string) {
	for _, p := range h.paths {
		if ok, _ := path.Match(glob, p); ok {
			found = append(found, p)
		}
	}
	return found
}

// NodeText is an element of Device.Nodes.
func NodeText(host, container string) string {
	if host == container {
		return host
	}
	return host + ">" + container
}

// Offered is a device that the imported configuration offers.
func Offered(resource string, o *device.Offer) Device {
	d := Device{
		Resource: resource,
		Slots:    o.Slots,
		ID:       o.ID,
	}
	for _, n := range o.Nodes {
		d.Nodes = append(d.Nodes, NodeText(n.HostPath, n.Path.String()))
	}
	return d
}

// Compare describes the devices that only the other plugin offers, and the devices that only the
// imported configuration offers. Two devices are the same if they have the same nodes, or the same ID
// if the other plugin's devices have IDs.
func Compare(before, now []Device) (onlyBefore, onlyNow []string) {
	byID := make(map[string]bool) // by resource
	for _, d := range before {
		byID[d.Resource] = d.ID != ""
	}
	// A resource that the other plugin has no device of may still be one whose devices have
	// IDs.
	hasIDs := slices.ContainsFunc(before, func(d Device) bool {
		return d.ID != ""
	})
	for _, d := range now {
		known, isKnown := byID[d.Resource]
		if known || hasIDs && !isKnown {
			onlyNow = append(onlyNow, d.describe(d.ID))
		} else {
			onlyNow = append(onlyNow, d.describe(""))
		}
	}
	for _, d := range before {
		text := d.describe(d.ID)
		i := slices.Index(onlyNow, text)
		if i >= 0 {
			onlyNow = slices.Delete(onlyNow, i, i+1)
			continue
		}
		onlyBefore = append(onlyBefore, text)
	}
	return onlyBefore, onlyNow
}

// describe describes a device by its ID, or by its nodes if the ID is empty.
func (d Device) describe(id string) string {
	what := id
	if what == "" {
		what = strings.Join(slices.Sorted(slices.Values(d.Nodes)), ",")
	}
	slots := "slots"
	if d.Slots == 1 {
		slots = "slot"
	}
	return fmt.Sprintf("%s: %s with %d %s", d.Resource, what, d.Slots, slots)
}
