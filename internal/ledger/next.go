package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// Next returns the next state for an input, and the output.
//
//   - A device is listed when it is matched, and Healthy unless its offer has a
//     problem. A device with several nodes, or that may get more nodes, settles first if it
//     is new or its nodes changed.
//   - A removed device, a slot beyond a lowered count and a retired resource turn
//     Unhealthy at once and leave the list later: after at least a minute, a
//     removed device after ForgetAfter, and never while a container holds a slot of
//     the device. After the minute a removed device is listed with one slot, or with the
//     slots up to the last one that a container holds.
//   - All lists together have a budget. If absent devices take too much of it, the ones without a holder
//     leave their list after five seconds, and new devices wait for them.
//   - A pool stays the same device while its members appear and disappear, and settles
//     only when it first appears.
//   - A device whose interfaces moved into the container that holds it is Healthy
//     and present, see netState.
//   - A held device without a record, after a loss of the state, is listed, too, because a
//     kubelet shows a device that is missing from the list as Healthy.
//   - A device is Unhealthy while a container holds its hardware in another way, see Input.Blocked.
//   - A device that is now matched for another resource leaves the old resource in the
//     same manner, and the new resource lists it only then: kubelets up to 1.36 cannot
//     distinguish an ID in two resources.
//
// Equal states and inputs have equal results.
func (s State) Next(in Input) (State, Output) {
	t := s.open(in)
	t.restoreOrphans()
	t.measure()
	t.match()
	t.expire()
	t.measure()
	t.takeOver()
	t.countUnlisted()
	return t.finish()
}

// transition is one call of Next.
type transition struct {
	in     Input
	first  bool
	drafts []*draft
	// owner has the resource that lists a device, by ID.
	owner map[string]*draft
	// superseded are the absent devices that do not return as they are listed although their hardware is
	// present, by ID.
	superseded map[string]supersession
	// held has the held slots of each device, by ID.
	held map[string][]heldSlot
	// unlisted are the IDs of held devices that have no record.
	unlisted []string
	// taken is what the lists take of the budget, and isFull is set if absent devices take too much of it.
	taken  int
	isFull bool
	out    Output
}

// supersession is why an absent device does not return as it is listed.
type supersession struct {
	// by is the ID under which its hardware is offered.
	by     string
	reason string
}

// heldSlot is a slot that a container holds, and the resource through which it holds it.
type heldSlot struct {
	slot     int
	resource string
}

// draft is the next state of a resource.
type draft struct {
	resource
	config Resource
	// matched has the IDs of all offers, including contested ones.
	matched map[string]bool
	// contested are the offers of devices that another resource lists, whose hardware a
	// container holds in another way, or for which the lists have no room.
	contested []device.Offer
	// waiting are the contested devices that cannot be listed yet.
	waiting []Waiting
}

// open begins a transition. It copies the changeable parts of the state, and pairs each resource of the
// state with its configuration.
func (s State) open(in Input) *transition {
	t := &transition{
		in:         in,
		first:      !s.started,
		owner:      make(map[string]*draft),
		superseded: make(map[string]supersession),
		held:       make(map[string][]heldSlot),
	}
	for id, name := range in.Held.IDs {
		base, slot := device.SplitSlot(id)
		t.held[base] = append(t.held[base], heldSlot{slot, name})
	}
	before := make(map[string]resource, len(s.resources))
	for _, res := range s.resources {
		before[res.name] = res
	}
	seen := make(map[string]bool)
	for _, config := range in.Resources {
		if !seen[config.Name] {
			seen[config.Name] = true
			t.add(config, before[config.Name])
			delete(before, config.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		t.add(Resource{Name: name, Refuse: ReasonRemoved}, before[name])
	}
	return t
}

// add adds a resource with its configuration and its previous state, which is the zero resource
// for a new one.
func (t *transition) add(config Resource, last resource) {
	last.name = config.Name
	d := &draft{
		resource: last,
		config:   config,
		matched:  make(map[string]bool, len(config.Offers)),
	}
	d.records = maps.Clone(last.records)
	if d.records == nil {
		d.records = make(map[string]record)
	}
	for id := range d.records {
		t.owner[id] = d
	}
	t.drafts = append(t.drafts, d)
}

// match lists the offered devices, unless another resource lists or holds them, and updates the
// records of devices without an offer.
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
			reason := t.blockedBy(d, offer)
			if reason == "" && t.list(d, offer) {
				continue
			}
			d.contested = append(d.contested, offer)
			if reason == "" {
				continue
			}
			if t.owner[id] != d {
				reason = reasonTakenOver + d.name
			}
			if _, isKnown := t.superseded[id]; !isKnown {
				t.superseded[id] = supersession{by: id, reason: reason}
			}
		}
	}
	t.findRenamed()
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
	isConfigured := d.config.Refuse == ""
	isUnread := slices.Contains(t.in.UnreadHardware, device.UnreadHardware{Path: rec.offer.Hardware})
	if isConfigured && rec.phase.isPresent() && isUnread {
		return rec // it may still be present
	}
	_, isSuperseded := t.superseded[id]
	if isConfigured && !isSuperseded && t.inContainer(d, id, &rec) {
		rec.offer = movedOffer(rec.offer)
		rec.phase = ready
		rec.since = time.Time{}
		return rec
	}
	mayBeAwaited := t.in.Now.Before(t.in.Start.Add(completeAfter))
	switch {
	case rec.phase == onlyHeld:
	case d.config.MatchIncomplete || t.mayBeUnread(id):
		rec.phase = unread
	case rec.phase == awaited && mayBeAwaited:
	default:
		rec.phase = gone
	}
	isUnplugged := rec.offer.Hardware != "" && !t.in.hasHardware(rec.offer.Hardware)
	if isUnplugged {
		rec.offer.Places = device.LastingPlaces(rec.offer.Places)
	}
	return rec.absent(t.in.Now)
}

// absent returns the record of a device that is not present, without what only a present device has.
func (rec record) absent(now time.Time) record {
	if rec.since.IsZero() {
		rec.since = now
	}
	rec.offer = device.Offer{
		ID:     rec.offer.ID,
		Slots:  rec.offer.Slots,
		NUMA:   rec.offer.NUMA,
		Places: rec.offer.Places,
	}
	return rec
}

// mayBeUnread reports whether a device may be unread hardware: IDs contain the sysfs name of
// their hardware, except IDs of USB devices, which may be in any port by now.
func (t *transition) mayBeUnread(id string) bool {
	for _, u := range t.in.UnreadHardware {
		name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
		areBothUSB := strings.Contains(id, "usb:") && strings.Contains(u.Path, "/usb")
		if areBothUSB || strings.Contains(id, name) {
			return true
		}
	}
	return false
}

// list lists a device with its offer, as far as there is room, and reports whether there is.
func (t *transition) list(d *draft, offer device.Offer) (hasRoom bool) {
	offer.Slots, hasRoom = t.slotsInRoom(d, &offer)
	if offer.Slots == 0 {
		return false
	}
	rec := d.records[offer.ID]
	before := ownNodes(rec.offer)
	nodes := ownNodes(offer)
	if rec.lacksNets(before, nodes) && t.inContainer(d, offer.ID, &rec) {
		// The offer without the interfaces does not describe the device of the container.
		slots := offer.Slots
		offer = movedOffer(rec.offer)
		nodes = before
		offer.Slots = slots
	} else {
		rec.net = netOf(offer)
	}
	keys := keysOf(nodes)
	if !rec.phase.isPresent() || !slices.Equal(nodes, before) {
		t.noteChange(&rec, offer, keys)
	}
	if offer.Slots < rec.offer.Slots {
		rec.lowered = t.in.Now
	}
	rec.listed = max(rec.listed, offer.Slots)
	rec.offer = offer
	rec.keys = keys
	rec.since = time.Time{}
	if rec.phase == settling {
		complete := t.settles(d.config, rec)
		if t.in.Now.Before(complete) {
			t.wake(complete)
		} else {
			rec.phase = ready
		}
	}
	d.records[offer.ID] = rec
	t.owner[offer.ID] = d
	return hasRoom
}

// noteChange records that a device has appeared, or that its nodes have changed, and begins
// the wait for it to settle. A device that was present before the program started does not
// settle if it has all its remembered nodes: it is complete.
func (t *transition) noteChange(rec *record, offer device.Offer, keys []string) {
	// Hardware that could be read only now may have been present from the start.
	wasPresentAtStart := rec.begun.IsZero() && (t.first || rec.phase == unread)
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
func (t *transition) settles(config Resource, rec record) time.Time {
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

// wake requests a call of Next at a time, unless an earlier call is requested.
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

// expire drops devices and slots that have been Unhealthy for long enough and are
// not held.
func (t *transition) expire() {
	t.isFull = t.absentParts() > maxAbsentParts
	for _, d := range t.drafts {
		for id, rec := range d.records {
			if t.expired(d, id, rec) {
				delete(d.records, id)
				delete(t.owner, id)
				t.countDropped(rec.listed)
				continue
			}
			// A device that is only held may have been listed with fewer slots.
			isHeldAbsent := !rec.phase.isPresent() && len(t.held[id]) > 0
			mayShrink := rec.listed > rec.needed() || isHeldAbsent
			if mayShrink && t.isDue(rec.unneededSince().Add(t.leaveAfter())) {
				next := t.shrink(d, id, rec)
				d.records[id] = next
				t.countDropped(rec.listed - next.listed)
			}
		}
	}
}

// expired reports whether a device leaves the list. Only a device that was removed from the host stays for
// ForgetAfter. Other devices make room for the resource or the ID that replaces them.
func (t *transition) expired(d *draft, id string, rec record) bool {
	if rec.since.IsZero() {
		return false
	}
	after := t.leaveAfter()
	_, isSuperseded := t.superseded[id]
	if d.config.Refuse == "" && !isSuperseded && !t.isFull {
		after = max(after, d.config.ForgetAfter)
	}
	return t.mayLeave(rec.since.Add(after), id)
}

// takeOver lists the contested devices that their former owners have released.
func (t *transition) takeOver() {
	for _, d := range t.drafts {
		for _, offer := range d.contested {
			reason := t.blockedBy(d, offer)
			switch {
			case reason == "" && t.list(d, offer):
				continue
			case reason == "":
				reason = reasonNoRoom
				t.out.WithoutRoom++
				t.out.AwaitsHolders = true
			case t.owner[offer.ID] == d:
				continue // its entry says why
			}
			d.waiting = append(d.waiting, Waiting{ID: offer.ID, Reason: reason})
		}
		order.Sort(d.waiting, func(a, b Waiting) int {
			return device.CompareNatural(a.ID, b.ID)
		})
	}
}

// blockedBy returns why d cannot list a device yet, or an empty string: another resource lists its ID,
// or a container holds its hardware in another way. A device that d lists as present stays, also one from
// before the start.
func (t *transition) blockedBy(d *draft, offer device.Offer) string {
	owner := t.owner[offer.ID]
	if owner != nil && owner != d {
		return "listed by " + owner.name + " until no container holds it"
	}
	phase := d.records[offer.ID].phase
	if owner == d && (phase.isPresent() || phase == awaited) {
		return ""
	}
	return t.blocked(d, &offer)
}

// findRenamed finds the listed devices without an offer whose hardware is offered under another ID, by
// their places. A device that several resources may offer has another ID in each of them.
func (t *transition) findRenamed() {
	at := offersAt{}
	for _, d := range t.drafts {
		for i := range d.config.Offers {
			o := offered{&d.config.Offers[i], d}
			for _, place := range o.Places {
				hardware := device.HardwareOf(place)
				at[hardware] = append(at[hardware], o)
			}
		}
	}
	for _, d := range t.drafts {
		for id, rec := range d.records {
			if d.matched[id] {
				continue
			}
			if next := at.renamed(d, &rec.offer); next != "" {
				t.superseded[id] = supersession{by: next, reason: reasonRenamed + next}
			}
		}
	}
}

// offersAt are the offers of all resources by the places of their hardware.
type offersAt map[string][]offered

// renamed returns the ID under which a device that d has listed is offered now. It is empty if there is
// none.
func (at offersAt) renamed(d *draft, listed *device.Offer) string {
	for _, place := range listed.Places {
		for _, o := range at[device.HardwareOf(place)] {
			if o.renames(d, listed) {
				return o.ID
			}
		}
	}
	return ""
}

// offered is an offer of a resource.
type offered struct {
	*device.Offer
	by *draft
}

// renames reports whether the offer is a device that d has listed under another ID. Nodes of the same
// hardware may be different devices, and so are the functions of an IOMMU group.
func (o offered) renames(d *draft, listed *device.Offer) bool {
	hardware := slices.DeleteFunc(slices.Clone(listed.Places), device.IsGroupPlace)
	isSame := device.SameHardware(hardware, o.Places) && !listed.IsOther(o.Offer)
	isOwn := o.by == d || !o.Shared && !o.Exclusive
	return o.ID != listed.ID && isSame && isOwn
}
