package ledger

import (
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
//     removed device after ten minutes, and never while a container holds a slot of
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
	t.match()
	t.expire()
	t.takeOver()
	t.restoreOrphans()
	return t.finish()
}

// transition is one call of Next.
type transition struct {
	in      Input
	isFirst bool
	records map[string]record
	// names are the names of the resources: the configured ones in their order, then retired ones. configs has
	// the configuration of each of them.
	names   []string
	configs map[string]*Resource
	// contested are the offers of devices that another resource lists, whose hardware a
	// container holds in another way, or for which the lists have no room.
	contested []match
	// superseded are the absent devices that do not return as they are listed although their hardware is
	// present, by ID.
	superseded map[string]supersession
	// taken is what the lists take of the budget, and isFull is set if absent devices take too much of it.
	taken   int
	isFull  bool
	waiting map[string][]Waiting
	out     Output
}

// match is an offer of a resource.
type match struct {
	config *Resource
	offer  *device.Offer
}

// supersession is why an absent device does not return as it is listed.
type supersession struct {
	// by is the ID under which its hardware is offered.
	by     string
	reason string
}

// open begins a transition. It copies the changeable parts of the state.
func (s State) open(in Input) *transition {
	t := &transition{
		in:         in,
		isFirst:    !s.started,
		records:    make(map[string]record, len(s.records)),
		configs:    map[string]*Resource{},
		superseded: map[string]supersession{},
		waiting:    map[string][]Waiting{},
	}
	for i := range in.Resources {
		t.addResource(&in.Resources[i])
	}
	for _, name := range s.Names() {
		t.addResource(&Resource{Name: name, Refuse: ReasonRemoved})
	}
	for id, rec := range s.records {
		t.put(id, rec)
	}
	return t
}

// addResource adds a resource, unless there is one of that name.
func (t *transition) addResource(config *Resource) {
	if t.configs[config.Name] != nil {
		return
	}
	t.configs[config.Name] = config
	t.names = append(t.names, config.Name)
	t.taken += device.ResourceParts
}

// put adds or replaces a record.
func (t *transition) put(id string, rec record) {
	if before, isListed := t.records[id]; isListed {
		t.taken -= before.parts()
	}
	t.records[id] = rec
	t.taken += rec.parts()
}

// match lists the offered devices, unless another resource lists or holds them, and updates the
// records of devices without an offer.
func (t *transition) match() {
	isMatched := map[string]bool{} // by the name of the resource and the ID
	for _, name := range t.names {
		config := t.configs[name]
		if config.Refuse != "" {
			continue
		}
		for i := range config.Offers {
			m := match{config, &config.Offers[i]}
			key := name + " " + m.offer.ID
			if !isMatched[key] {
				isMatched[key] = true
				t.matchOffer(m)
			}
		}
	}
	isAbsent := func(id string, rec record) bool {
		return !isMatched[rec.resource+" "+id]
	}
	t.findRenamed(isAbsent)
	for id, rec := range t.records {
		if isAbsent(id, rec) {
			t.put(id, t.unmatched(id, rec))
		}
	}
}

// matchOffer lists an offered device, or records why it is not listed.
func (t *transition) matchOffer(m match) {
	reason := t.blockedBy(m)
	if reason == "" && t.list(m) {
		return
	}
	t.contested = append(t.contested, m)
	if reason == "" {
		return
	}
	id := m.offer.ID
	if t.records[id].resource != m.config.Name {
		reason = reasonTakenOver + m.config.Name
	}
	if _, isKnown := t.superseded[id]; !isKnown {
		t.superseded[id] = supersession{by: id, reason: reason}
	}
}

// unmatched returns the record of an unmatched device.
func (t *transition) unmatched(id string, rec record) record {
	config := t.configs[rec.resource]
	isConfigured := config.Refuse == ""
	isUnread := slices.Contains(t.in.UnreadHardware, device.UnreadHardware{Path: rec.offer.Hardware})
	if isConfigured && rec.phase.isPresent() && isUnread {
		return rec // it may still be present
	}
	_, isSuperseded := t.superseded[id]
	if isConfigured && !isSuperseded && t.inContainer(id, &rec) {
		rec.offer = movedOffer(rec.offer)
		rec.phase = ready
		rec.since = time.Time{}
		return rec
	}
	mayBeAwaited := t.in.Now.Before(t.in.Start.Add(completeAfter))
	switch {
	case rec.phase == onlyHeld:
	case config.MatchIncomplete || t.mayBeUnread(id):
		rec.phase = unread
	case rec.phase == awaited && mayBeAwaited:
	case rec.phase != gone && t.isOnHost(&rec.offer):
		rec.phase = unselected
	default:
		rec.phase = gone
	}
	isUnplugged := rec.offer.Hardware != "" && !t.in.hasHardware(rec.offer.Hardware)
	if isUnplugged {
		rec.offer.Places = device.LastingPlaces(rec.offer.Places)
	}
	return rec.absent(t.in.Now)
}

// isOnHost reports whether a device that no match selects is on the host: any of its nodes, or its hardware if
// it has none. A device that uses nothing of the host, such as a licence, only disappears with an edit.
func (t *transition) isOnHost(o *device.Offer) bool {
	hasNodes := false
	for _, n := range o.Nodes {
		if n.Companion {
			continue
		}
		hasNodes = true
		now := t.in.Node(n.HostPath)
		if now != nil && (now.Hardware == nil || isHardwareOf(now.Hardware, o)) {
			return true
		}
	}
	return !hasNodes && slices.ContainsFunc(o.Places, func(place string) bool {
		isPath := strings.HasPrefix(place, "/")
		switch {
		case device.IsOwnPlace(place):
			return true
		case isPath:
			return t.in.Exists(place)
		}
		h := t.in.hardwareAt(device.HardwareOf(place))
		return h != nil && isHardwareOf(h, o)
	})
}

// isHardwareOf reports whether present hardware is the hardware of a device, and not what replaced it.
func isHardwareOf(h *device.Hardware, o *device.Offer) bool {
	isThere := slices.ContainsFunc(o.Places, func(place string) bool {
		return device.IsPlaceOf(place, h.Path)
	})
	return isThere && !device.HaveOtherSerials(slices.Concat(o.Names, o.Places), device.USBNames(h))
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
func (t *transition) list(m match) (hasRoom bool) {
	offer := *m.offer
	rec, isListed := t.records[offer.ID]
	hasRoom = t.hasRoomFor(rec, offer)
	if !hasRoom && !isListed {
		return false
	}
	if !hasRoom {
		offer.Slots = rec.listed
	}
	before := ownNodes(rec.offer)
	nodes := ownNodes(offer)
	if rec.lacksNets(before, nodes) && t.inContainer(offer.ID, &rec) {
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
	rec.resource = m.config.Name
	rec.listed = max(rec.listed, offer.Slots)
	rec.offer = offer
	rec.keys = keys
	rec.since = time.Time{}
	if rec.phase == settling {
		complete := t.settles(m.config, rec)
		if t.in.Now.Before(complete) {
			t.wake(complete)
		} else {
			rec.phase = ready
		}
	}
	t.put(offer.ID, rec)
	return hasRoom
}

// wake requests a call of Next at a time, unless an earlier call is requested.
func (t *transition) wake(at time.Time) {
	t.out.Wake = order.Earliest(t.out.Wake, at)
}

// expire drops devices and slots that have been Unhealthy for long enough and are
// not held.
func (t *transition) expire() {
	t.isFull = t.absentParts() > maxAbsentParts
	for id, rec := range t.records {
		if t.expired(id, rec) {
			t.taken -= rec.parts()
			delete(t.records, id)
			t.countDropped(rec.listed)
			t.addChange(id, rec, true)
			continue
		}
		// A device that is only held may have been listed with fewer slots.
		isHeldAbsent := !rec.phase.isPresent() && len(t.in.Held.Slots[id]) > 0
		mayShrink := rec.listed > rec.needed() || isHeldAbsent
		if mayShrink && t.isDue(rec.unneededSince().Add(t.leaveAfter())) {
			next := t.shrink(id, rec)
			t.put(id, next)
			t.countDropped(rec.listed - next.listed)
		}
	}
}

// expired reports whether a device leaves the list. Only a device that was removed from the host stays for
// forgetAfter. Other devices make room for the resource or the ID that replaces them.
func (t *transition) expired(id string, rec record) bool {
	if rec.since.IsZero() {
		return false
	}
	after := t.leaveAfter()
	_, isSuperseded := t.superseded[id]
	isRemoved := t.configs[rec.resource].Refuse == "" && !isSuperseded && rec.phase != unselected
	if isRemoved && !t.isFull {
		after = forgetAfter
	}
	return t.mayLeave(rec.since.Add(after), id)
}

// takeOver lists the contested devices that their former owners have released.
func (t *transition) takeOver() {
	for _, m := range t.contested {
		name := m.config.Name
		reason := t.blockedBy(m)
		switch {
		case reason == "" && t.list(m):
			continue
		case reason == "":
			reason = reasonNoRoom
			t.out.WithoutRoom++
			t.out.AwaitsHolders = true
		case t.records[m.offer.ID].resource == name:
			continue // its entry says why
		}
		rec, isListed := t.records[m.offer.ID]
		t.waiting[name] = append(t.waiting[name], Waiting{
			ID:     m.offer.ID,
			Reason: reason,
			Moves:  isListed && rec.resource != name,
		})
	}
}

// blockedBy returns why a resource cannot list a device yet, or an empty string: another resource lists its ID,
// or a container holds its hardware in another way. A device that it lists as present stays, also one from
// before the start.
func (t *transition) blockedBy(m match) string {
	rec, isListed := t.records[m.offer.ID]
	if isListed && rec.resource != m.config.Name {
		return "listed by " + rec.resource + " until no container holds it, at least for a minute"
	}
	if isListed && (rec.phase.isPresent() || rec.phase == awaited) {
		return ""
	}
	return t.blocked(m.config.Name, m.offer)
}

// findRenamed finds the listed devices without an offer whose hardware is offered under another ID, by
// their places. A device that several resources may offer has another ID in each of them.
func (t *transition) findRenamed(isAbsent func(id string, rec record) bool) {
	at := map[string][]match{} // by the place of the hardware
	for _, name := range t.names {
		config := t.configs[name]
		for i := range config.Offers {
			o := &config.Offers[i]
			for _, place := range o.Places {
				hardware := device.HardwareOf(place)
				at[hardware] = append(at[hardware], match{config, o})
			}
		}
	}
	for id, rec := range t.records {
		if !isAbsent(id, rec) {
			continue
		}
		for _, place := range rec.offer.Places {
			offers := at[device.HardwareOf(place)]
			i := slices.IndexFunc(offers, rec.isRenamedTo)
			if i >= 0 {
				by := offers[i].offer.ID
				reason := reasonToBeRenamed
				if _, isListed := t.records[by]; isListed {
					reason = reasonRenamed
				}
				t.superseded[id] = supersession{by: by, reason: reason + by}
				break
			}
		}
	}
}

// isRenamedTo reports whether an offer is the device under another ID. Nodes of the same
// hardware may be different devices, and so are the functions of an IOMMU group.
func (rec record) isRenamedTo(m match) bool {
	hardware := slices.DeleteFunc(slices.Clone(rec.offer.Places), device.IsGroupPlace)
	isSame := device.SameHardware(hardware, m.offer.Places) && !rec.offer.IsOther(m.offer)
	isOwn := m.config.Name == rec.resource || !m.offer.Shared && !m.offer.Exclusive
	return m.offer.ID != rec.offer.ID && isSame && isOwn
}
