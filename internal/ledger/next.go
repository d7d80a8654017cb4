package ledger

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Next returns the state that follows from in, and the output.
//
//   - A device is listed when it is matched, and Healthy unless its offer has a
//     problem. A new one, or one whose nodes changed, settles first, if it has
//     several nodes or may get more.
//   - A removed device, a slot beyond a lowered count and a retired resource turn
//     Unhealthy at once and leave the list later: after a minute at least, a
//     removed device after ForgetAfter, and not while a container holds a slot of
//     it. After the minute a removed device is listed with one slot, and with those
//     that a container holds.
//   - All lists together have a budget. Absent devices that no container holds leave
//     their list earlier for it, see fit.
//   - A pool stays the same device while its members come and go, and settles
//     only when it first appears.
//   - A device whose interfaces moved into the container that holds it is Healthy
//     and present, see netState.
//   - A held device without a record, after a loss of the state, is listed too: a
//     kubelet shows a device that is missing from the list as Healthy.
//   - A device that is now matched for another resource leaves the old one in the
//     same manner, and the new one lists it only then: kubelets up to 1.36 cannot
//     distinguish an ID in two resources, and a device that a container holds
//     through one resource must not be allocated through another.
//
// Equal states and inputs have equal results.
func (s State) Next(in Input) (State, Output) {
	t := s.open(in)
	t.restoreOrphans()
	t.match()
	t.expire()
	t.takeOver()
	t.fit()
	t.countUnlisted()
	return t.finish()
}

// transition is one call of Next.
type transition struct {
	in     Input
	first  bool
	drafts []*draft
	owner  map[string]*draft // the resource that lists a device, by ID
	// nextOwner has the resource that matches a device while another one lists it, by ID.
	nextOwner map[string]string
	// renamed has the ID by which the hardware of a listed device is offered now, by its ID.
	renamed  map[string]string
	held     map[string][]heldSlot // by the ID of the device
	forgot   bool                  // see State
	unlisted []string              // held devices without a record
	out      Output
}

type heldSlot struct {
	slot     int
	resource string
}

// draft is the next state of a resource.
type draft struct {
	resource
	before    map[string]record // the records before
	config    Resource
	matched   map[string]bool // by ID, contested ones included
	contested []device.Offer  // of devices listed by another resource
	waiting   []Waiting       // the contested ones that stay there
}

// open copies the mutable parts and pairs them with their input.
func (s State) open(in Input) *transition {
	t := &transition{
		in:        in,
		first:     !s.started,
		owner:     make(map[string]*draft),
		nextOwner: make(map[string]string),
		renamed:   make(map[string]string),
		held:      make(map[string][]heldSlot),
		forgot:    s.forgot,
	}
	for id, name := range in.Held.IDs {
		base, slot := device.SplitSlot(id)
		t.held[base] = append(t.held[base], heldSlot{slot, name})
	}
	before := make(map[string]resource, len(s.resources))
	for _, res := range s.resources {
		before[res.name] = res
	}
	add := func(config Resource) {
		res := before[config.Name]
		delete(before, config.Name)
		res.name = config.Name
		d := &draft{
			resource: res,
			before:   res.records,
			config:   config,
			matched:  make(map[string]bool, len(config.Offers)),
		}
		d.records = maps.Clone(res.records)
		if d.records == nil {
			d.records = make(map[string]record)
		}
		for id := range d.records {
			t.owner[id] = d
		}
		for _, offer := range config.Offers {
			for _, alias := range t.in.Aliases[offer.ID] {
				t.renamed[alias] = cmp.Or(t.renamed[alias], offer.ID)
			}
		}
		t.drafts = append(t.drafts, d)
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
	return t
}

// match pairs offers with records.
func (t *transition) match() {
	for _, d := range t.drafts {
		if d.config.Refuse != "" {
			continue
		}
		for _, offer := range d.config.Offers {
			id := offer.ID
			if d.matched[id] {
				continue
			}
			d.matched[id] = true
			if t.blockedBy(d, offer) == "" {
				t.list(d, offer)
				continue
			}
			d.contested = append(d.contested, offer)
			t.nextOwner[id] = cmp.Or(t.nextOwner[id], d.name)
		}
	}
	for _, d := range t.drafts {
		for id, rec := range d.records {
			if !d.matched[id] {
				d.records[id] = t.unmatched(d, id, rec)
			}
		}
	}
}

// unmatched returns the record of an unmatched device for d.
func (t *transition) unmatched(d *draft, id string, rec record) record {
	if d.config.Refuse == "" && rec.present && slices.Contains(t.in.Unread, device.Unread{Path: rec.offer.Hardware}) {
		return rec
	}
	if d.config.Refuse == "" && t.nextOwner[id] == "" && t.inContainer(d, id, &rec) {
		rec.offer = movedOffer(rec.offer)
		rec.present = true
		rec.settled = true
		rec.since = time.Time{}
		return rec
	}
	rec.unread = d.config.Unread || t.mayBeUnread(id)
	return rec.absent(t.in.Now)
}

// absent returns the record of an unmatched device.
func (rec record) absent(now time.Time) record {
	if rec.since.IsZero() {
		rec.since = now
	}
	rec.present = false
	rec.settled = false
	rec.nodes = nil
	rec.offer = device.Offer{ID: rec.offer.ID, Slots: rec.offer.Slots, NUMA: rec.offer.NUMA}
	return rec
}

// mayBeUnread reports whether a device may be unread hardware. A USB device may be in
// any port by now.
func (t *transition) mayBeUnread(id string) bool {
	return slices.ContainsFunc(t.in.Unread, func(u device.Unread) bool {
		name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
		return strings.Contains(id, name) || strings.Contains(id, "usb:") && strings.Contains(u.Path, "/usb")
	})
}

// list lists a device with its offer.
func (t *transition) list(d *draft, offer device.Offer) {
	offer.Slots = max(1, offer.Slots)
	rec := d.records[offer.ID]
	nodes := ownNodes(offer)
	if rec.lacksNets(nodes) && t.inContainer(d, offer.ID, &rec) {
		// An offer without the interfaces is less than the container got.
		slots := offer.Slots
		offer = movedOffer(rec.offer)
		nodes = rec.nodes
		offer.Slots = slots
	} else {
		rec.net = netOf(offer)
	}
	keys := keysOf(nodes)
	// Present before the program started, and possibly read only now.
	atStart := rec.begun.IsZero() && (t.first || rec.unread)
	if came := !rec.present; came || !slices.Equal(nodes, rec.nodes) {
		if came || !offer.Pool {
			rec.settled = false
			rec.begun = t.in.Now
		}
		rec.changed = t.in.Now
		missing := func(key string) bool {
			return !slices.Contains(keys, key)
		}
		switch {
		case !atStart:
		case len(rec.keys) == 0: // only events show that nodes are still being added
			rec.changed = time.Time{}
		case offer.Pool || !slices.ContainsFunc(rec.keys, missing): // complete as before
			rec.settled = true
		}
	}
	if offer.Slots < rec.offer.Slots {
		rec.lowered = t.in.Now
	}
	rec.listed = max(rec.listed, offer.Slots)
	rec.kept = from(rec.kept, rec.listed)
	rec.offer = offer
	rec.nodes = nodes
	rec.keys = keys
	rec.present = true
	rec.unread = false
	rec.orphan = false
	rec.since = time.Time{}
	if !rec.settled {
		ready := t.settles(d.config, rec)
		if rec.settled = !t.in.Now.Before(ready); !rec.settled {
			t.wake(ready)
		}
	}
	d.records[offer.ID] = rec
	t.owner[offer.ID] = d
}

// settles returns when a device is complete if no event follows.
func (t *transition) settles(config Resource, rec record) time.Time {
	grows := config.Grows && rec.offer.Hardware != "" || rec.offer.Pool
	if len(rec.nodes) <= 1 && !grows {
		return t.in.Now
	}
	last := rec.changed
	if event := t.in.lastEvent(rec.offer.Hardware); event.After(last) {
		last = event
	}
	ready := last.Add(settleTime)
	if limit := rec.begun.Add(settleLimit); limit.Before(ready) {
		return limit
	}
	return ready
}

func (t *transition) wake(at time.Time) {
	if t.out.Wake.IsZero() || at.Before(t.out.Wake) {
		t.out.Wake = at
	}
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
		nodes = append(nodes, node{key: n.Key, path: n.HostName, net: true})
	}
	sort.Slice(nodes, func(i, j int) bool {
		return cmp.Or(strings.Compare(nodes[i].key, nodes[j].key), strings.Compare(nodes[i].path, nodes[j].path)) < 0
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

// expire drops devices and slots that have been Unhealthy for long enough and are
// not held.
func (t *transition) expire() {
	for _, d := range t.drafts {
		for id, rec := range d.records {
			if t.expired(d, id, rec) {
				delete(d.records, id)
				delete(t.owner, id)
				continue
			}
			extra, since := rec.extra()
			if extra || !rec.present && len(t.held[id]) > 0 {
				if t.knows(since.Add(leaveAfter)) {
					d.records[id] = t.shortened(d, id, rec)
				}
			}
			if rec.net.away() {
				t.out.AskHeld = true // no event announces that a virtual interface ended with its pod
			}
		}
	}
}

// expired reports whether a device leaves the list.
func (t *transition) expired(d *draft, id string, rec record) bool {
	if rec.since.IsZero() {
		return false
	}
	after := leaveAfter
	isGone := d.config.Refuse == "" && t.nextOwner[id] == "" && t.renamed[id] == ""
	if isGone {
		after = max(after, d.config.ForgetAfter)
	}
	return t.mayLeave(rec.since.Add(after), id)
}

// takeOver lists the contested devices that their former owners have released.
func (t *transition) takeOver() {
	for _, d := range t.drafts {
		for _, offer := range d.contested {
			reason := t.blockedBy(d, offer)
			if reason == "" {
				t.list(d, offer)
				continue
			}
			if t.owner[offer.ID] == nil {
				t.out.AskHeld = true
			}
			d.waiting = append(d.waiting, Waiting{ID: offer.ID, Reason: reason})
		}
		sort.Slice(d.waiting, func(i, j int) bool {
			return device.CompareNatural(d.waiting[i].ID, d.waiting[j].ID) < 0
		})
	}
}

// blockedBy returns why d can't list a device yet, empty if it can.
func (t *transition) blockedBy(d *draft, offer device.Offer) string {
	owner := t.owner[offer.ID]
	if owner == d {
		return ""
	}
	alias := ""
	for _, id := range t.in.Aliases[offer.ID] {
		if owner == nil && t.owner[id] != nil {
			owner = t.owner[id]
			alias = id
		}
	}
	if owner == nil {
		return t.heldElsewhere(d, offer)
	} else if owner == d {
		return "listed as " + alias + " until no container holds it"
	} else {
		return "listed by " + owner.name + " until no container holds it"
	}
}
