package agent

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/output"
)

// retention decides which links and CDI entries stay although they are not configured. A container
// that restarts finds its device only by what was injected when its pod was admitted. Links and
// entries stay while a container may hold the device, and while every target is still the node that
// was injected.
type retention struct {
	// view is the match of this pass, in which nodes are looked up by path.
	view *View
	// held is who holds what.
	held *holds.View
	// inPod has the kind of the CDI entry of each device whose interfaces are in a container,
	// by ID. The host does not see these interfaces, so that their targets cannot be compared.
	inPod map[string]string
	// injected are the targets of the last pass.
	injected ledger.Injected
	// keys are the keys of the nodes of each hardware that was looked up: device.NodeKeys compares all of them.
	keys map[*device.Hardware]map[*device.Node]string
	// any is set if anything stays.
	any bool
}

// newRetention returns the retention of one pass.
func newRetention(v *View, out ledger.Output, injected ledger.Injected, held *holds.View) *retention {
	r := &retention{
		view:     v,
		held:     held,
		inPod:    map[string]string{},
		injected: injected,
		keys:     map[*device.Hardware]map[*device.Node]string{},
	}
	for _, res := range out.Resources {
		kind, _ := device.SplitResourceKey(res.Name)
		for _, e := range res.Devices {
			if e.Offer.NetsInContainer || e.NetsMissing {
				r.inPod[e.Offer.ID] = kind
			}
		}
	}
	return r
}

// keepLink reports whether a link stays.
func (r *retention) keepLink(l output.Link) bool { return r.keep(l.ID, l.Target) }

// keepEntry reports whether a CDI entry stays. The entry of a device whose interfaces are in a
// container stays as it is.
func (r *retention) keepEntry(kind, id string, hostPaths []string) bool {
	return r.inPod[id] == kind || r.keep(id, hostPaths...)
}

// keep reports whether what injects these nodes of a device stays. It sets any if it returns true.
func (r *retention) keep(id string, hostPaths ...string) bool {
	if r.inPod[id] != "" || !r.held.IsHeld(id) {
		return false
	}
	for _, path := range hostPaths {
		if !r.unchanged(id, path) && !r.isOnlyUnread(id, path) {
			return false
		}
	}
	r.any = true
	return true
}

// record returns the new targets: the targets of the listed devices, and earlier targets that are
// unchanged, or whose device could not be read yet. It also keeps the targets of a held device that
// is not listed: the lists may have no room for it, and its hardware must not be offered under
// another ID.
func (r *retention) record(out ledger.Output) ledger.Injected {
	next := ledger.Injected{}
	keep := func(id string) {
		for path, node := range r.injected[id] {
			if r.unchanged(id, path) {
				// The ID may have a new form, for example if a second device has the same serial
				// number now.
				next.Add(id, path, r.nodeID(path))
			} else if r.mayBeUnread(path) {
				next.Add(id, path, node)
			}
		}
	}
	for id := range r.injected {
		if r.held.IsHeld(id) {
			keep(id)
		}
	}
	for _, res := range out.Resources {
		for _, e := range res.Devices {
			keep(e.Offer.ID)
			// The offer of an absent device has no current nodes. Its earlier targets are kept
			// above.
			if !e.Present {
				continue
			}
			for _, n := range e.Offer.Nodes {
				next.Add(e.Offer.ID, n.HostPath, r.nodeID(n.HostPath))
			}
		}
	}
	return next
}

// unchanged reports whether the node at a path is the one that was injected for a
// device. A node without hardware is identified by its path. It is false if there is no node.
func (r *retention) unchanged(id, path string) bool {
	n := r.view.node(path)
	if n == nil {
		return false
	}
	if n.Hardware == nil {
		return true
	}
	if r.namesOtherPort(id, n) {
		return false // the device is in another port now, and listed with the ID of that port
	}
	return device.SameNode(r.nodeID(path), r.injected[id][path])
}

// namesOtherPort reports whether an ID names a USB port, and the hardware of a node is in another
// one: by such an ID, it is another device there.
func (r *retention) namesOtherPort(id string, n *device.Node) bool {
	isPortID := strings.HasPrefix(id, "usb:") && strings.Contains(id, ":port:")
	isAtPort := id == device.HardwareID(n.Hardware, device.PortForm) || id == r.idOf(n, device.PortForm)
	return isPortID && !isAtPort
}

// mayBeUnread reports whether the node at a path may belong to hardware that could not be read yet,
// as after a start. The scan leaves out all its nodes.
func (r *retention) mayBeUnread(path string) bool {
	return len(r.view.unread) > 0 && r.view.node(path) == nil
}

// isOnlyUnread reports whether the node at a path may belong to hardware that a container holds, and that
// could not be read now. What is removed for that would not come back if it is not configured any more.
// Hardware in another place is not that hardware, and may get the name of its node.
func (r *retention) isOnlyUnread(id, path string) bool {
	if r.view.node(path) != nil {
		return false
	}
	for _, u := range r.view.unread {
		isIts := func(place string) bool { return device.IsPlaceOf(place, u.Path) }
		if !u.New && slices.ContainsFunc(r.held.Places(id), isIts) {
			return true
		}
	}
	return false
}

// nodeID returns the ID of the node at a path, which does not depend on the name that the kernel
// gave it. It is empty for a node without hardware.
func (r *retention) nodeID(path string) string {
	n := r.view.node(path)
	if n == nil || n.Hardware == nil {
		return ""
	}
	return r.idOf(n, r.view.Forms[n.Hardware])
}

// idOf returns the ID of a node of hardware, with its hardware in a form.
func (r *retention) idOf(n *device.Node, form device.Form) string {
	h := n.Hardware
	if r.keys[h] == nil {
		r.keys[h] = device.NodeKeys(h)
	}
	return device.KeyedNodeID(n, form, r.keys[h][n])
}
