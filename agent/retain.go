package agent

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/links"
	"github.com/generic-dp/generic-dp/matchers"
)

// retainFor is how long at least what led to devices stays after the
// configuration has changed: a container that was admitted before may not be
// among those yet that the kubelet knows to hold something.
const retainFor = time.Minute

// retained is what leads to devices and is not called for by the configuration
// any more: a container keeps what it was given when it was admitted, and finds
// its device at its next start only if that is still there.
type retained struct {
	links   []links.Link
	entries map[entry]bool
}

// entry is one device of a CDI spec of this program.
type entry struct{ kind, id string }

// place is where a node is, and what makes it the same one.
type place struct {
	path         string
	major, minor uint32
	hardware     string
}

// retain finds what is on disk, is not wanted, and leads to where its device is:
// of devices that are listed although the configuration has no word for them, and
// of those that it hands over in another way now and that a container may hold.
func (l *loop) retain(v *View, out ledger.Output, want []links.Link) retained {
	l.notePlaces(v, out)
	kept := retained{entries: map[entry]bool{}}
	stays, left := map[string]bool{}, false
	held := l.mayHold()
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			id := e.Offer.ID
			switch {
			case e.Offer.Moved, e.Unseen:
				// Where its interfaces are, nobody can see; it leads to none.
				kept.entries[entry{r.Name, id}] = true
			case e.Present:
				stays[id] = held == nil || held[id]
			case e.Reason != ledger.ReasonGone:
				stays[id], left = true, true
			}
		}
	}
	if !left && !l.retains {
		return kept // what is wanted is all there is
	}
	still := func(id, path string) bool { return stays[id] && l.still(v, id, path) }
	have, err := l.links.List()
	l.sayOnce("kept links", text(err), "links can't be read")
	for _, link := range have {
		wanted := slices.ContainsFunc(want, func(w links.Link) bool { return w.ID == link.ID && w.Key == link.Key })
		if !wanted && still(link.ID, link.Target) {
			kept.links = append(kept.links, link)
		}
	}
	l.retains = err != nil || len(kept.links) > 0
	for e, paths := range l.ownEntries() {
		if stays[e.id] && !slices.ContainsFunc(paths, func(path string) bool { return !still(e.id, path) }) {
			kept.entries[e] = true
			l.retains = l.retains || !v.wantsEntry(e)
		}
	}
	return kept
}

// wantsEntry reports whether the configuration has a device handed over by the
// CDI name of an entry.
func (v *View) wantsEntry(e entry) bool {
	return slices.ContainsFunc(v.Matched.Resources, func(m matchers.Matched) bool {
		return m.Name == e.kind && slices.ContainsFunc(m.Offers, func(o device.Offer) bool { return o.CDI && o.ID == e.id })
	})
}

// mayHold are the devices of which a container may hold a slot by what it was
// told before the configuration changed; nil is all.
func (l *loop) mayHold() map[string]bool {
	if l.held.Partial || l.held.At.Before(l.switched.Add(retainFor)) {
		return nil
	}
	ids := map[string]bool{}
	for slot := range l.held.IDs {
		id, _ := device.SplitSlot(slot)
		ids[id] = true
	}
	return ids
}

// notePlaces remembers where the nodes of listed devices are, of former
// configurations too, for as long as they are there.
func (l *loop) notePlaces(v *View, out ledger.Output) {
	places := make(map[string][]place, len(l.places))
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			id := e.Offer.ID
			for _, p := range l.places[id] {
				if n := v.node(p.path); n != nil && placeOf(n) == p {
					places[id] = append(places[id], p)
				}
			}
			if !e.Present {
				continue
			}
			for _, o := range e.Offer.Nodes {
				if n := v.node(o.HostPath); n != nil && !slices.Contains(places[id], placeOf(n)) {
					places[id] = append(places[id], placeOf(n))
				}
			}
		}
	}
	l.places = places
}

// node returns the node at a path of the host; nil is none.
func (v *View) node(path string) *device.Node {
	i, found := slices.BinarySearchFunc(v.Snapshot.Nodes, path, func(n *device.Node, path string) int { return strings.Compare(n.Path, path) })
	if !found {
		return nil
	}
	return v.Snapshot.Nodes[i]
}

func placeOf(n *device.Node) place {
	p := place{path: n.Path, major: n.Major, minor: n.Minor}
	if n.Hardware != nil {
		p.hardware = n.Hardware.Path
	}
	return p
}

// still reports whether the node at a path is one that the device had since the
// start, or by its identity must have had before. A node without hardware is known
// by its name alone.
func (l *loop) still(v *View, id, path string) bool {
	n := v.node(path)
	if n == nil {
		return false
	}
	if n.Hardware == nil || slices.Contains(l.places[id], placeOf(n)) {
		return true
	}
	if id == device.HardwareID(n.Hardware, v.Forms[n.Hardware]) || id == device.NodeID(n, v.Forms[n.Hardware]) {
		return true
	}
	// The node of an IOMMU group has one owner; each function of it may be the
	// device.
	group := n.Hardware.IOMMUGroup()
	return group != "" && n.Subsystem == "vfio" && slices.ContainsFunc(v.Snapshot.Hardware, func(h *device.Hardware) bool {
		return h.IOMMUGroup() == group && id == device.HardwareID(h, v.Forms[h])
	})
}

// ownEntries reads the nodes that each entry of this program's CDI specs has now.
func (l *loop) ownEntries() map[entry][]string {
	found := map[entry][]string{}
	files, err := l.specs.Files()
	l.sayOnce("kept specs", text(err), "CDI specs can't be read")
	for _, file := range files {
		var spec struct {
			Kind    string
			Devices []struct {
				Name           string
				ContainerEdits struct {
					DeviceNodes []struct{ Path, HostPath string }
				}
			}
		}
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &spec) != nil {
			continue // none to a runtime either
		}
		for _, d := range spec.Devices {
			paths := []string{}
			for _, n := range d.ContainerEdits.DeviceNodes {
				if n.HostPath == "" {
					n.HostPath = n.Path
				}
				paths = append(paths, n.HostPath)
			}
			found[entry{spec.Kind, d.Name}] = paths
		}
	}
	return found
}
