package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// node is the identity of a node of a device.
type node struct {
	key, path string
	// net is set for an interface, whose name is path.
	net          bool
	major, minor uint32
}

// ownNodes returns the nodes of a device without its companions, and its
// interfaces, by key.
func ownNodes(offer device.Offer) []node {
	var nodes []node
	for _, n := range offer.Nodes {
		if !n.Companion {
			nodes = append(nodes, node{
				key:   n.Key,
				path:  n.HostPath,
				major: n.Major,
				minor: n.Minor,
			})
		}
	}
	for _, n := range offer.Nets {
		nodes = append(nodes, node{
			key:  n.Key,
			path: n.HostName,
			net:  true,
		})
	}
	order.Sort(nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.path, b.path))
	})
	return nodes
}

// keysOf returns the keys of nodes, in the order of the nodes.
func keysOf(nodes []node) []string {
	var keys []string
	for _, n := range nodes {
		keys = append(keys, n.key)
	}
	return keys
}

// noteChange records that a device has appeared, or that its nodes have changed, and begins
// the wait for it to settle. A device that was present before the program started does not
// settle if it has all its remembered nodes: it is complete.
func (t *transition) noteChange(rec *record, offer device.Offer, keys []string) {
	// Hardware that could be read only now may have been present from the start.
	wasPresentAtStart := rec.begun.IsZero() && (t.isFirst || rec.phase == unread)
	if !rec.phase.isPresent() || !offer.Pool {
		rec.phase = settling
		rec.begun = t.in.Now
	}
	rec.changed = t.in.Now
	if !wasPresentAtStart {
		return
	}
	if len(rec.keys) == 0 {
		rec.changed = time.Time{} // only events can show that nodes are still being added
		return
	}
	isMissing := func(key string) bool {
		return !slices.Contains(keys, key)
	}
	if offer.Pool || !slices.ContainsFunc(rec.keys, isMissing) {
		rec.phase = ready
	}
}

// settles returns when a device is complete if no event follows. A device with one node that
// cannot get more is complete at once.
func (t *transition) settles(config *Resource, rec record) time.Time {
	mayGetNodes := config.Grows && rec.offer.Hardware != ""
	grows := mayGetNodes || rec.offer.Pool
	if len(rec.keys) <= 1 && !grows {
		return t.in.Now
	}
	last := rec.changed
	event := t.in.lastEvent(rec.offer.Hardware)
	if event.After(last) {
		last = event
	}
	complete := last.Add(settleTime)
	limit := rec.begun.Add(settleLimit)
	if limit.Before(complete) {
		return limit
	}
	return complete
}
