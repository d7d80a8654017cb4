package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/ledger"
	"github.com/generic-dp/generic-dp/links"
)

// retainFor is how long at least links and CDI entries stay after the
// configuration has changed: a container that was admitted before may not be
// among those yet that the kubelet knows to hold something.
const retainFor = time.Minute

// inject brings links and CDI specs in line with what is there now: what leads
// to a device that went is removed before anything else is made. It returns why
// devices can't be injected, by ID.
func (l *loop) inject(v *View, out ledger.Output) map[string]error {
	if !l.writer {
		return nil // the other instance does; Allocate checks before it answers
	}
	failed := map[string]error{}
	if l.options.CDIOnly {
		l.syncSpecs(out, nil, failed)
		l.sayOnce("links", text(l.links.Sync(nil, nil)), "links of an earlier instance can't be removed")
		return failed
	}
	var want []links.Link
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			if e.Present {
				want = append(want, links.For(e.Offer)...)
			}
		}
	}
	kept := l.retention(v, out)
	l.syncSpecs(out, kept.keepEntry, failed)
	err := l.links.Sync(want, kept.keepLink)
	l.sayOnce("links", text(err), "links can't be kept current")
	if err != nil {
		for _, link := range want {
			if target, err := os.Readlink(l.links.Path(link.ID, link.Key)); err != nil || target != link.Target {
				failed[link.ID] = errors.New("its link below --run-dir can't be made")
			}
		}
	}
	l.retained, l.retains = kept.kept, kept.any
	return failed
}

// syncSpecs does the CDI half.
func (l *loop) syncSpecs(out ledger.Output, keep func(kind, id string, hostPaths []string) bool, failed map[string]error) {
	var specs []*cdi.Spec
	var kinds map[string]string // of others
	l.unfit = 0
	for _, r := range out.Resources {
		var offers []device.Offer
		for _, e := range r.Devices {
			if e.Present && e.Offer.CDI {
				offers = append(offers, e.Offer)
			}
		}
		if len(offers) == 0 {
			continue
		}
		if kinds == nil {
			kinds = l.others.Kinds()
		}
		if file, taken := kinds[r.Name]; taken {
			for _, o := range offers {
				failed[o.ID] = fmt.Errorf("CDI kind %q is taken by %s", r.Name, file)
			}
			continue
		}
		specs = append(specs, l.spec(r.Name, offers, failed))
	}
	err := l.specs.Sync(specs, keep)
	l.sayOnce("specs", text(err), "CDI specs can't be kept current")
	l.handed.Store(newHanded(specs, err))
	if err == nil {
		return
	}
	for _, spec := range specs {
		if spec == nil {
			continue
		}
		for _, d := range spec.Devices {
			failed[d.Name] = errors.New("its CDI spec below --cdi-dir can't be written")
		}
	}
}

// spec is the CDI spec of a resource.
func (l *loop) spec(name string, offers []device.Offer, failed map[string]error) *cdi.Spec {
	if !l.options.CDIOnly {
		spec, err := cdi.Build(name, offers, l.options.Paths.missing)
		l.sayInStep("spec of "+name, text(err), "CDI spec lacks a device")
		return spec
	}
	spec, left := cdi.BuildAlone(name, offers, l.options.Paths.missing)
	if err := left[cdi.AllDevices]; err != nil { // as it should be for sticks at one path
		l.log.Debug("CDI spec has no entry for all devices together", "resource", name, "reason", err)
	}
	delete(left, cdi.AllDevices)
	maps.Copy(failed, left)
	l.unfit += len(left)
	return spec
}

// retention decides which links and CDI entries stay that the configuration does
// not ask for: a container finds its device at its next start only by what it was
// given when it was admitted. They stay while a container may hold the device and
// every node that they lead to is still the one that it was.
type retention struct {
	view *View
	// mayBeHeld has the listed devices that a container may hold by what it was
	// given before the configuration changed. inPod has the CDI entries of devices
	// whose interfaces are not on the host: where they are nobody can see.
	mayBeHeld map[string]bool
	inPod     map[[2]string]bool // by kind and ID
	injected  ledger.Injected
	kept      ledger.Injected // what stays leads to these
	any       bool            // something stays
}

func (l *loop) retention(v *View, out ledger.Output) *retention {
	r := &retention{view: v, mayBeHeld: map[string]bool{}, inPod: map[[2]string]bool{}, injected: l.injected, kept: ledger.Injected{}}
	held := l.mayHold()
	for _, res := range out.Resources {
		for _, e := range res.Devices {
			id := e.Offer.ID
			if e.Offer.Moved || e.Unseen {
				r.inPod[[2]string{res.Name, id}] = true
			} else {
				r.mayBeHeld[id] = held == nil || held[id]
			}
		}
	}
	return r
}

func (r *retention) keepLink(l links.Link) bool { return r.keep(l.ID, l.Target) }

func (r *retention) keepEntry(kind, id string, hostPaths []string) bool {
	return r.inPod[[2]string{kind, id}] || r.keep(id, hostPaths...)
}

func (r *retention) keep(id string, hostPaths ...string) bool {
	if !r.mayBeHeld[id] {
		return false
	}
	for _, path := range hostPaths {
		if !r.unchanged(id, path) {
			return false
		}
	}
	r.any = true
	for _, path := range hostPaths {
		r.kept.Add(id, path, r.view.nodeID(path))
	}
	return true
}

// unchanged reports whether the node at a path is the one that was there when it
// was injected for a device. A node without hardware is known by its name alone.
func (r *retention) unchanged(id, path string) bool {
	n := r.view.node(path)
	switch {
	case n == nil:
		return false
	case n.Hardware == nil:
		return true
	case r.injected[id] == nil:
		// Written by a version that did not remember nodes.
		form := r.view.Forms[n.Hardware]
		return id == device.HardwareID(n.Hardware, form) || id == device.NodeID(n, form)
	}
	return r.injected[id][path] == device.NodeID(n, r.view.Forms[n.Hardware])
}

// remember takes down which nodes are injected, for retention after the
// configuration has changed, or the program was restarted.
func (l *loop) remember(v *View, out ledger.Output) {
	next := ledger.Injected{}
	for _, r := range out.Resources {
		for _, e := range r.Devices {
			for _, n := range e.Offer.Nodes {
				if e.Present {
					next.Add(e.Offer.ID, n.HostPath, v.nodeID(n.HostPath))
				}
			}
		}
	}
	for id, nodes := range l.retained {
		for path, node := range nodes {
			next.Add(id, path, node)
		}
	}
	l.injected = next
}

// mayHold are the devices of which a container may hold a slot by what it was
// given before the configuration changed; nil is all.
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

// node returns the node at a path of the host; nil is none.
func (v *View) node(path string) *device.Node {
	i, found := slices.BinarySearchFunc(v.Snapshot.Nodes, path, func(n *device.Node, path string) int { return strings.Compare(n.Path, path) })
	if !found {
		return nil
	}
	return v.Snapshot.Nodes[i]
}

// nodeID names the node at a path, whatever the kernel calls it; it is empty for
// one without hardware, which has no other name.
func (v *View) nodeID(path string) string {
	n := v.node(path)
	if n == nil || n.Hardware == nil {
		return ""
	}
	return device.NodeID(n, v.Forms[n.Hardware])
}

// handed is what is on offer by CDI names.
type handed struct {
	names []string // qualified, those of one resource by device
	err   error    // why not all of them may be there
}

func newHanded(specs []*cdi.Spec, err error) *handed {
	h := &handed{err: err}
	for _, spec := range specs {
		if spec == nil {
			continue
		}
		for _, d := range spec.Devices {
			h.names = append(h.names, spec.Kind+"="+d.Name)
		}
	}
	return h
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
