package ledger

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// Next returns the state that follows from in, and what is to be listed.
//
//   - A device is listed when it is matched, and Healthy unless its offer has
//     a problem. One that just came or whose nodes changed settles first, if
//     it has several nodes or may get more.
//   - A device that goes, a slot that a lower count leaves over and a resource
//     that is retired turn Unhealthy at once and leave the list later: after a
//     minute at least, a device that is gone after ForgetAfter, and not while
//     a container holds a slot of it.
//   - A pool stays what it is while its members come and go, and settles only
//     when it comes itself.
//   - A device whose interfaces left the host for the container that holds it
//     is Healthy and there, see netState.
//   - What containers hold and nothing remembers, since the state was lost, is
//     listed too: a kubelet shows a device that is missing from the list as
//     Healthy.
//   - A device that is matched for another resource leaves the old one like
//     that too, and the new one lists it only then: an ID in two resources is
//     more than kubelets up to 1.36 can tell apart, and what a container holds
//     through one resource must not be given to another through the next.
//
// Equal states and inputs make equal results.
func (s State) Next(in Input) (State, Output) {
	r := s.open(in)
	r.recover()
	r.match()
	r.leave()
	r.adopt()
	return r.close()
}

// round is one call of Next.
type round struct {
	in    Input
	first bool
	works []*work
	// owner of each listed ID, and for those that it does not match any more
	// the name of the resource that does.
	owner map[string]*work
	moved map[string]string
	// held slots by the ID of their device.
	held map[string][]heldSlot
	out  Output
}

type heldSlot struct {
	slot     int
	resource string
}

// work is a resource in the making.
type work struct {
	resource
	config  Resource
	known   bool // the resource was in the state
	matched map[string]bool
	waiting []device.Offer
	blocked []Waiting
}

// open copies what changes and pairs it with its input.
func (s State) open(in Input) *round {
	r := &round{
		in: in, first: !s.started,
		owner: make(map[string]*work), moved: make(map[string]string), held: make(map[string][]heldSlot),
	}
	for id, name := range in.Held.IDs {
		base, slot := device.SplitSlot(id)
		r.held[base] = append(r.held[base], heldSlot{slot, name})
	}
	before := make(map[string]resource, len(s.resources))
	for _, res := range s.resources {
		before[res.name] = res
	}
	add := func(config Resource) {
		res, known := before[config.Name]
		delete(before, config.Name)
		res.name = config.Name
		if res.records = maps.Clone(res.records); res.records == nil {
			res.records = make(map[string]record)
		}
		res.pending = maps.Clone(res.pending)
		w := &work{resource: res, config: config, known: known, matched: make(map[string]bool, len(config.Offers))}
		for id := range res.records {
			r.owner[id] = w
		}
		r.works = append(r.works, w)
	}
	seen := make(map[string]bool)
	for _, config := range in.Resources {
		if !seen[config.Name] {
			seen[config.Name] = true
			add(config)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		add(Resource{Name: name, Refuse: ReasonRemoved})
	}
	return r
}

// recover makes records of what is held through a configured resource and is
// not known.
func (r *round) recover() {
	for _, w := range r.works {
		if w.config.Refuse != "" {
			continue
		}
		for id, slots := range r.held {
			if r.owner[id] != nil || !device.ValidID(id) {
				continue
			}
			count := 0
			for _, h := range slots {
				if h.resource == w.name {
					count = max(count, h.slot+1)
				}
			}
			if count > 0 && count <= device.MaxSlots {
				w.records[id] = record{offer: device.Offer{ID: id, Slots: count}}
				r.owner[id] = w
			}
		}
	}
}

// match brings offers and records together.
func (r *round) match() {
	for _, w := range r.works {
		if w.config.Refuse != "" {
			continue
		}
		seen := make(map[string]bool, len(w.config.Offers))
		for _, offer := range w.config.Offers {
			if seen[offer.ID] {
				continue
			}
			seen[offer.ID] = true
			if r.blockedBy(w, offer.ID) == "" {
				r.take(w, offer)
				continue
			}
			w.waiting = append(w.waiting, offer)
			if r.moved[offer.ID] == "" {
				r.moved[offer.ID] = w.name
			}
		}
	}
	for _, w := range r.works {
		for id, rec := range w.records {
			if !w.matched[id] {
				w.records[id] = r.unmatched(w, id, rec)
			}
		}
	}
}

// unmatched returns the record of a device that is not matched for w.
func (r *round) unmatched(w *work, id string, rec record) record {
	if w.config.Refuse == "" && r.moved[id] == "" && r.inContainer(w, id, &rec) {
		rec.offer = movedOffer(rec.offer)
		rec.present, rec.settled, rec.since = true, true, time.Time{}
		return rec
	}
	if w.config.Refuse == "" && rec.present && slices.Contains(r.in.Unread, device.Unread{Path: rec.offer.Hardware}) {
		return rec
	}
	rec.unread = r.mayBeUnread(id)
	return rec.absent(r.in.Now)
}

// mayBeUnread reports whether a device may be hardware that could not be read yet. A USB
// device may be in any port by now.
func (r *round) mayBeUnread(id string) bool {
	return slices.ContainsFunc(r.in.Unread, func(u device.Unread) bool {
		name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
		return strings.Contains(id, name) || strings.Contains(id, "usb:") && strings.Contains(u.Path, "/usb")
	})
}

// take lists a device with its offer.
func (r *round) take(w *work, offer device.Offer) {
	offer.Slots = max(1, offer.Slots)
	rec := w.records[offer.ID]
	nodes := ownNodes(offer)
	if rec.lacksNets(nodes) && r.inContainer(w, offer.ID, &rec) {
		// What is matched without them is less than what the container got.
		slots := offer.Slots
		offer, nodes = movedOffer(rec.offer), rec.nodes
		offer.Slots = slots
	} else {
		rec.net = netOf(offer)
	}
	keys := keysOf(nodes)
	// It was there at the start, and is read only now.
	late := rec.unread && rec.begun.IsZero()
	if came := !rec.present; came || !slices.Equal(nodes, rec.nodes) {
		if came || !offer.Pool {
			rec.settled, rec.begun = false, r.in.Now
		}
		rec.changed = r.in.Now
		if (r.first || late) && (offer.Pool || containsAll(keys, rec.keys)) {
			// It came before the program did. What is remembered is whole; of
			// the rest only events say that it is still coming.
			rec.changed = time.Time{}
			rec.settled = len(rec.keys) > 0
		}
	}
	rec.retired = retire(rec.retired, rec.offer.Slots, offer.Slots, r.in.Now)
	rec.offer, rec.nodes, rec.keys = offer, nodes, keys
	rec.present, rec.unread, rec.since = true, false, time.Time{}
	if !rec.settled {
		ready := r.settles(w.config, rec)
		if rec.settled = !r.in.Now.Before(ready); !rec.settled {
			r.wake(ready)
		}
	}
	w.records[offer.ID] = rec
	w.matched[offer.ID] = true
	r.owner[offer.ID] = w
}

// settles returns when a device is whole if nothing more happens.
func (r *round) settles(config Resource, rec record) time.Time {
	grows := config.Grows && rec.offer.Hardware != "" || rec.offer.Pool
	if len(rec.nodes) <= 1 && !grows {
		return r.in.Now
	}
	last := rec.changed
	if r.in.LastEvent != nil && rec.offer.Hardware != "" {
		if event := r.in.LastEvent(rec.offer.Hardware); event.After(last) {
			last = event
		}
	}
	ready := last.Add(settleTime)
	if limit := rec.begun.Add(settleLimit); limit.Before(ready) {
		return limit
	}
	return ready
}

func (r *round) wake(t time.Time) {
	if r.out.Wake.IsZero() || t.Before(r.out.Wake) {
		r.out.Wake = t
	}
}

// ownNodes returns the nodes of a device without its companions, and its
// interfaces, by key.
func ownNodes(offer device.Offer) []node {
	var nodes []node
	for _, n := range offer.Nodes {
		if !n.Companion {
			nodes = append(nodes, node{key: n.Key, path: n.HostPath, major: n.Major, minor: n.Minor})
		}
	}
	for _, n := range offer.Nets {
		nodes = append(nodes, node{key: n.Key, path: n.HostName, net: true})
	}
	slices.SortFunc(nodes, func(a, b node) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return strings.Compare(a.path, b.path)
	})
	return nodes
}

func keysOf(nodes []node) []string {
	var keys []string
	for _, n := range nodes {
		keys = append(keys, n.key)
	}
	return keys
}

func containsAll(keys, want []string) bool {
	for _, k := range want {
		if !slices.Contains(keys, k) {
			return false
		}
	}
	return true
}
