package holds

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

const (
	// grantTime is how long a slot counts as held after an Allocate call until the checkpoint has
	// it. The kubelet writes it within milliseconds after the call, unless its node is overloaded.
	grantTime = time.Minute
	// maxHolds and maxHoldsPerSlot limit the memory: a checkpoint may name any number of pods. One
	// with more holds counts as unread.
	maxHolds        = 60_000
	maxHoldsPerSlot = 16
)

// Options are the options of a Book. The functions must be safe for concurrent use.
type Options struct {
	// Checkpoint is the path of the kubelet's checkpoint.
	Checkpoint string
	// Cgroups says whether a pod has a cgroup, and whether it runs.
	Cgroups *cgroup.Tree
	// Journal is the path of the file that keeps holds over a restart of the program. If it is
	// empty, Grant only checks the slots and records nothing: no container gets them.
	Journal string
	// Boot is the ID of this boot: no container survives a reboot.
	Boot string
	// Now is the clock.
	Now func() time.Time
	// Listed queries the kubelet for the held slots, with "namespace/name" of the pod. The query
	// makes the kubelet forget pods that have ended (UpdateAllocatedDevices,
	// pkg/kubelet/cm/devicemanager/manager.go).
	Listed func(ctx context.Context) (pods map[string]string, err error)
	// ListAgain sends the list of a resource to the kubelet again, which then writes its checkpoint.
	ListAgain func()
	// Pods returns "namespace/name" of all pods that the kubelet has.
	Pods func(ctx context.Context) (map[string]bool, error)
	// Generation counts the starts of the kubelet.
	Generation func() uint64
	// Changed is called when the view has changed, without a lock.
	Changed func()
	// NewPods is called when the host may have new pods, after FollowPods.
	NewPods func()
	// CgroupHint says what to change if no cgroup is visible.
	CgroupHint string
	Log        *slog.Logger
}

// Book has all holds. It is safe for concurrent use.
type Book struct {
	Options
	// requests asks Run for another look. It has capacity 1.
	requests chan struct{}
	// reads are the reads of the checkpoint, of which one runs at a time.
	reads slow.Calls[string, bool]
	// podCgroups watches the cgroups of pods while a hold waits for the end of a pod, or always after
	// FollowPods.
	podCgroups *watch.Watcher

	mu sync.Mutex
	// pods are the pods that have each slot, or had it and have not ended.
	pods map[string][]podHold
	// grants are the slots of Allocate calls that the checkpoint has not shown yet.
	grants map[string]grant
	// claims has the devices of each claim by its UID.
	claims map[string][]Holder
	// uses is what each held device uses, by its ID.
	uses map[string]Device
	// isOurs reports whether a resource is this program's. A nil function means every resource.
	isOurs func(resource string) bool
	// unreadClaims is why the devices of some claims are not known.
	unreadClaims string

	reading reading
	// refreshes belongs to Run.
	refreshes refreshes
	// isAwaited is set while something waits for the end of a hold.
	isAwaited bool
	// followsPods is set by FollowPods.
	followsPods bool
	// journal is the file of the holds.
	journal journal
	// view is nil after a change.
	view   *View
	logged logged
}

// podHold is a pod that has a slot, or had it and may not have ended.
type podHold struct {
	pod      string
	resource string
	// isNamed is set if the checkpoint that was read last has the hold.
	isNamed bool
	// isRefused is set if the pod runs although the kubelet has freed its slot: nobody else gets the slot.
	isRefused bool
	// refresh is the number of the last refresh when the checkpoint lost the hold. Only a checkpoint
	// from after another one proves that the kubelet has forgotten the pod: somebody may have
	// replaced the file while the kubelet runs.
	refresh uint64
	// staticName is "namespace/name" of a static pod, empty if it is not known.
	staticName string
	// generation is the start of the kubelet whose checkpoint had the hold last, 0 if it is not
	// known.
	generation uint64
}

// grant is a slot that an Allocate call returned.
type grant struct {
	resource string
	at       time.Time
	// before are the pods that had the slot: the pod of the call is another one.
	before []string
}

// logged is what the log already says: the last error of each kind. It is logged once, until it has ended.
type logged struct {
	noCgroups bool
	read      string
	query     string
	journal   string
}

// logOnce logs an error with a message, unless it is the last one of its kind. The caller holds the lock.
func (b *Book) logOnce(last *string, err error, message string) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if err != nil && text != *last {
		b.Log.Warn(message, "err", err)
	}
	*last = text
}

// New returns a Book without holds. Load reads them.
func New(o Options) *Book {
	b := &Book{
		Options:  o,
		requests: make(chan struct{}, 1),
		pods:     map[string][]podHold{},
		grants:   map[string]grant{},
		claims:   map[string][]Holder{},
		uses:     map[string]Device{},
	}
	b.podCgroups = watch.New(watch.Options{
		Source: "cgroups of pods",
		// The kubelet makes a directory for each pod. The files of a cgroup do not matter here.
		Events: watch.Names,
		Dirs:   b.watchedCgroups,
		Resync: 10 * time.Minute,
		Poll:   10 * time.Second,
		Log:    o.Log,
	})
	return b
}

// View returns who holds what now.
func (b *Book) View() *View {
	if b == nil {
		return &View{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current()
}

// current is View. The caller holds the lock.
func (b *Book) current() *View {
	b.expireGrants()
	if b.view != nil {
		return b.view
	}
	holders := map[string][]Holder{}
	for h := range b.holders() {
		holders[h.ID] = append(holders[h.ID], h)
	}
	for _, list := range holders {
		order.Stable(list, compareHolders)
	}
	b.view = newView(holders, maps.Clone(b.uses))
	b.view.unread = b.reading.unread
	b.view.unreadClaims = b.unreadClaims
	return b.view
}

// holders are all holders, in any order. The caller holds the lock.
func (b *Book) holders() iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		ours := map[string]bool{}
		for slot, pods := range b.pods {
			id, number := device.SplitSlot(slot)
			for _, p := range pods {
				isOurs, isKnown := ours[p.resource]
				if !isKnown {
					isOurs = b.isOurs == nil || b.isOurs(p.resource)
					ours[p.resource] = isOurs
				}
				h := Holder{ID: id, Slot: number, Resource: p.resource, Pod: p.pod}
				if isOurs && !yield(h) {
					return
				}
			}
		}
		for slot, g := range b.grants {
			id, number := device.SplitSlot(slot)
			if !yield(Holder{ID: id, Slot: number, Resource: g.resource}) {
				return
			}
		}
		for _, devices := range b.claims {
			for _, h := range devices {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// compareHolders orders the holders of a device: pods, then grants, then claims.
func compareHolders(a, b Holder) int {
	byClaim := cmp.Compare(a.Claim, b.Claim)
	isOneGrant := (a.Pod == "") != (b.Pod == "")
	if byClaim == 0 && isOneGrant {
		return cmp.Compare(b.Pod, a.Pod)
	}
	return cmp.Or(byClaim, cmp.Compare(a.Slot, b.Slot))
}

// expireGrants drops the grants that no pod has taken in time, according to the latest checkpoint, and
// reports whether there were some. The caller holds the lock.
func (b *Book) expireGrants() bool {
	now := b.Now()
	hasExpired := false
	for slot, g := range b.grants {
		isYoung := now.Before(g.at.Add(grantTime))
		if isYoung || !b.reading.isCurrent(b.Checkpoint) {
			continue
		}
		delete(b.grants, slot)
		hasExpired = true
	}
	if hasExpired {
		b.changed()
	}
	return hasExpired
}

// changed drops the view. The journal follows later. The caller holds the lock.
func (b *Book) changed() {
	b.view = nil
	b.journal.isOutdated = true
}

// request asks Run for another look.
func (b *Book) request() { watch.Signal(b.requests) }

// Observe says what the offered devices use of the host now, by ID, and which resources are this
// program's. A held device that is not offered keeps what it used, as far as that is known here, or was
// remembered before a reboot, see Device.notOffered.
func (b *Book) Observe(ctx context.Context, offered, remembered map[string]Device, plugged map[string][]string, isOurs func(resource string) bool) {
	if b == nil {
		return
	}
	b.catchUp(ctx, readPatience) // a device that a container got before this pass is held in it
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOurs = isOurs
	b.view = nil // other resources may be ours
	held := b.heldDevices()
	maps.DeleteFunc(b.uses, func(id string, _ Device) bool {
		return !held[id]
	})
	for id := range held {
		before, isKnown := b.uses[id]
		next, isOffered := offered[id]
		if !isOffered {
			last, isRemembered := remembered[id]
			if isKnown {
				last = before
			} else if !isRemembered {
				continue
			}
			next = last.notOffered(plugged)
		}
		if !isKnown || !reflect.DeepEqual(next, before) {
			b.uses[id] = next
			b.journal.isOutdated = true
		}
	}
	if b.journal.isOutdated {
		b.request()
	}
}

// heldDevices returns the IDs of all held devices, also of other programs. The caller holds the lock.
func (b *Book) heldDevices() map[string]bool {
	ids := map[string]bool{}
	for slot := range b.pods {
		ids[deviceOfSlot(slot)] = true
	}
	for slot := range b.grants {
		ids[deviceOfSlot(slot)] = true
	}
	for _, devices := range b.claims {
		for _, h := range devices {
			ids[h.ID] = true
		}
	}
	return ids
}

// Slot is a slot that an Allocate call asks for.
type Slot struct {
	// ID is the ID of the slot.
	ID string
	// Device is the device of the slot.
	Device Wanted
}

// Grant records that a container gets slots of one resource, unless another container may have their
// hardware, or the pod that had a slot before still runs. The error names the device and its holder.
// The record is written before Grant returns. The caller calls cancel if the container does not get
// them after all. A nil Book grants everything.
func (b *Book) Grant(ctx context.Context, slots []Slot) (cancel func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	devices := make([]Wanted, len(slots))
	for i := range slots {
		devices[i] = slots[i].Device
	}
	if err := CheckWithin(devices); err != nil {
		return nil, err
	}
	if err := b.checkSlots(ctx, slots); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireGrants()
	for _, s := range slots {
		if reason := b.refuses(&s.Device); reason != "" {
			return nil, fmt.Errorf("device %q is %s: it can be allocated when that container has ended", s.Device.ID, reason)
		}
	}
	if b.Journal == "" {
		return func() {}, nil
	}
	before := make([]grant, len(slots))
	for i, s := range slots {
		before[i] = b.grants[s.ID]
		b.grants[s.ID] = grant{
			resource: s.Device.Resource,
			at:       b.Now(),
			before:   b.podsOf(s.ID),
		}
		b.uses[s.Device.ID] = s.Device.Device
	}
	if err := b.record(slots); err != nil {
		isExclusive := slices.ContainsFunc(slots, func(s Slot) bool {
			return s.Device.Exclusive
		})
		if isExclusive {
			b.undo(slots, before)
			return nil, fmt.Errorf("device %q is exclusive, and its use cannot be recorded: %w", slots[0].Device.ID, err)
		}
		b.logJournal(err)
	}
	b.view = nil
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.undo(slots, before)
	}, nil
}

// refuses returns why an Allocate call for a device is refused. Without the checkpoint, only
// exclusive devices are refused: the kubelet knows whether a slot of any other device is free. It compares
// each hold, because each call changes them: a View would be made for one call. The caller holds the lock.
func (b *Book) refuses(w *Wanted) string {
	if w.Exclusive && b.isUnknown() {
		return b.current().Blocked(*w)
	}
	for h := range b.holders() {
		use := b.useOf(h.ID)
		if h.excludes(use, w) {
			return h.reason(use, w)
		}
	}
	return ""
}

// isUnknown reports whether some holders are not known. The caller holds the lock.
func (b *Book) isUnknown() bool { return b.reading.unread != "" || b.unreadClaims != "" }

// useOf is what a held device uses, nil if that is not known. The caller holds the lock.
func (b *Book) useOf(id string) *Device {
	use, isKnown := b.uses[id]
	if !isKnown {
		return nil
	}
	return &use
}

// undo restores the grants of slots as they were before, the zero grant if there was none. The caller holds
// the lock.
func (b *Book) undo(slots []Slot, before []grant) {
	for i, s := range slots {
		if before[i].at.IsZero() {
			delete(b.grants, s.ID)
		} else {
			b.grants[s.ID] = before[i]
		}
	}
	b.changed()
	b.request()
}

// podsOf returns the pods that have a slot. The caller holds the lock.
func (b *Book) podsOf(slot string) []string {
	var pods []string
	for _, p := range b.pods[slot] {
		pods = append(pods, p.pod)
	}
	return pods
}

// CheckWithin returns why one container cannot have these devices together: two of them are the same
// hardware, or exclude each other.
func CheckWithin(devices []Wanted) error {
	for i := range devices {
		w := &devices[i]
		for j := range devices[:i] {
			other := &devices[j]
			h := Holder{ID: other.ID, Resource: other.Resource}
			if other.ID != w.ID && h.excludes(&other.Device, w) {
				return fmt.Errorf("devices %q and %q exclude each other, and a container cannot have both", other.ID, w.ID)
			}
		}
	}
	return nil
}

// Reserve records the devices of a claim, once for each slot, unless another container may have their
// hardware in another way, or has the slots. It replaces what the claim had. conflicts are the holders that
// exclude a device of the claim; then nothing is recorded.
func (b *Book) Reserve(claim string, devices []Wanted) (conflicts []Holder, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireGrants()
	slots := map[string]int{}
	for i := range devices {
		w := &devices[i]
		slots[w.ID]++
		if w.Exclusive && b.isUnknown() {
			return nil, fmt.Errorf("device %q is exclusive: %s", w.ID, b.current().Blocked(*w))
		}
		var others []Holder // of slots of the same device
		for h := range b.holders() {
			switch {
			case h.Claim == claim:
			case h.excludes(b.useOf(h.ID), w):
				conflicts = append(conflicts, h)
			case h.ID == w.ID:
				others = append(others, h)
			}
		}
		if len(others)+slots[w.ID] > w.Slots {
			conflicts = append(conflicts, others...)
		}
	}
	if len(conflicts) > 0 {
		order.Stable(conflicts, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), compareHolders(a, b))
		})
		return conflicts, nil
	}
	b.setClaim(claim, devices)
	return nil, nil
}

// Record records the devices of a prepared claim, whatever else is held.
func (b *Book) Record(claim string, devices []Wanted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setClaim(claim, devices)
}

// setClaim records the devices of a claim. The caller holds the lock.
func (b *Book) setClaim(claim string, devices []Wanted) {
	var held []Holder
	slots := map[string]int{}
	for _, w := range devices {
		held = append(held, Holder{
			ID:       w.ID,
			Slot:     slots[w.ID],
			Resource: w.Resource,
			Claim:    claim,
		})
		slots[w.ID]++
		if w.Places != nil {
			b.uses[w.ID] = w.Device
		}
	}
	b.claims[claim] = held
	b.changed()
	b.request()
}

// Release removes a claim that has ended.
func (b *Book) Release(claim string) {
	b.mu.Lock()
	_, wasHeld := b.claims[claim]
	delete(b.claims, claim)
	b.changed()
	b.mu.Unlock()
	if wasHeld {
		b.Changed()
		b.request()
	}
}

// SetClaims replaces all claims. unread is why the devices of some are not known, nil if all are known.
func (b *Book) SetClaims(claims map[string][]Wanted, unread error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = map[string][]Holder{}
	b.unreadClaims = ""
	if unread != nil {
		b.unreadClaims = unread.Error()
	}
	for claim, devices := range claims {
		b.setClaim(claim, devices)
	}
}

// Await says whether something waits for the end of a hold. Meanwhile the ends of pods are followed.
func (b *Book) Await(waits bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	hasChanged := b.isAwaited != waits
	b.isAwaited = waits
	b.mu.Unlock()
	if waits || hasChanged {
		b.request() // a refresh may be due
	}
}

// FollowPods has Run call NewPods from now on.
func (b *Book) FollowPods() {
	b.mu.Lock()
	b.followsPods = true
	b.mu.Unlock()
	b.request()
}

// Refused returns why slots are unhealthy although nobody holds them as far as the kubelet knows, by
// slot.
func (b *Book) Refused() map[string]string {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	reasons := map[string]string{}
	for slot, pods := range b.pods {
		i := slices.IndexFunc(pods, func(p podHold) bool { return p.isRefused })
		if i >= 0 {
			reasons[slot] = reasonRunning(pods[i].pod)
		}
	}
	return reasons
}
