package holds

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// Options are the options of a Book. The functions must be safe for concurrent use.
type Options struct {
	// Checkpoint is the path of the kubelet's checkpoint.
	Checkpoint string
	// Cgroups says whether a pod has a cgroup, and whether it runs.
	Cgroups *cgroup.Tree
	// Journal is the path of the file that keeps holds over a restart of the program.
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
	reads slow.Calls[string, struct{}]
	// podCgroups watches the cgroups of pods while a hold waits for the end of a pod, or always after
	// FollowPods.
	podCgroups *watch.Watcher
	// refreshes belongs to Run.
	refreshes refreshes

	mu sync.Mutex
	// pods are the pods that have each slot, or had it and have not ended.
	pods map[string][]podHold
	// grants are the slots of Allocate calls that the checkpoint has not shown yet.
	grants map[string]grant
	// claims has the devices of each claim by its UID.
	claims map[string][]Holder
	// uses is what each held device uses, by its ID.
	uses map[string]Device
	// isOurs reports whether a resource is this program's.
	isOurs func(resource string) bool
	// reading is what is known of the checkpoint.
	reading reading
	// unreadClaims is why the devices of some claims are not known.
	unreadClaims string
	// isAwaited is set while something waits for the end of a hold.
	isAwaited bool
	// followsPods is set by FollowPods.
	followsPods bool
	// mayWrite is set if the journal belongs to this instance, and isOutdated if it lacks a change.
	mayWrite, isOutdated bool
	// view is nil after a change.
	view *View
	// logged is the last error of each message in the log, until it has ended.
	logged map[string]string
}

// podHold is a pod that has a slot, or had it and may not have ended.
type podHold struct {
	Pod      string `json:"pod"`
	Resource string `json:"resource"`
	// StaticName is "namespace/name" of a static pod, empty if it is not known.
	StaticName string `json:"static_name,omitempty"`
	// isNamed is set if the checkpoint that was read last has the hold. Otherwise, lostAt is when the checkpoint
	// was read that does not have it any more.
	isNamed bool
	lostAt  time.Time
	// isRefused is set if the pod runs although the kubelet has freed its slot: nobody else gets the slot.
	isRefused bool
	// generation is the start of the kubelet whose checkpoint had the hold last, 0 if it is not
	// known.
	generation uint64
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
		logged:   map[string]string{},
		isOurs: func(string) bool {
			return true // until Observe
		},
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

// logOnce logs an error with a message, unless it is the last one with that message. The caller holds the
// lock.
func (b *Book) logOnce(err error, message string, attributes ...any) {
	if err == nil {
		delete(b.logged, message)
		return
	}
	if b.logged[message] != err.Error() {
		b.logged[message] = err.Error()
		b.Log.Warn(message, append([]any{"err", err}, attributes...)...)
	}
}

// View returns who holds what now.
func (b *Book) View() *View {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current()
}

// current is View. The caller holds the lock.
func (b *Book) current() *View {
	b.expireGrants()
	if b.view == nil {
		holders := b.holders()
		order.Stable(holders, compareHolders)
		b.view = newView(holders, maps.Clone(b.uses))
		b.view.unread = b.reading.unread
		b.view.unreadClaims = b.unreadClaims
	}
	return b.view
}

// holders are all holders, in any order. Resources of other programs are left out. The caller holds the lock.
func (b *Book) holders() []Holder {
	var all []Holder
	for slot, pods := range b.pods {
		for _, p := range pods {
			if b.isOurs(p.Resource) {
				all = append(all, holderOf(slot, p.Resource))
			}
		}
	}
	for slot, g := range b.grants {
		all = append(all, holderOf(slot, g.resource))
	}
	for _, devices := range b.claims {
		all = append(all, devices...)
	}
	return all
}

// changed drops the view. The journal follows later. The caller holds the lock.
func (b *Book) changed() {
	b.view = nil
	b.isOutdated = true
}

// request asks Run for another look.
func (b *Book) request() { watch.Signal(b.requests) }

// Observe says what the offered devices use of the host now, by ID, and which resources are this
// program's. A held device that is not offered keeps what it used, as far as that is known here, or was
// remembered before a reboot, see Device.notOffered.
func (b *Book) Observe(ctx context.Context, offered, remembered map[string]Device, plugged map[string][]string, isOurs func(resource string) bool) {
	b.catchUp(ctx, readPatience) // a device that a container got before this pass is held in it
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isOurs = isOurs
	b.view = nil // other resources may be ours
	uses := map[string]Device{}
	for _, h := range b.holders() {
		use, isOffered := offered[h.ID]
		if isOffered {
			uses[h.ID] = use
			continue
		}
		last, isKnown := b.uses[h.ID]
		if !isKnown {
			last, isKnown = remembered[h.ID]
		}
		if isKnown {
			uses[h.ID] = last.notOffered(plugged)
		}
	}
	if !reflect.DeepEqual(uses, b.uses) {
		b.uses = uses
		b.isOutdated = true
		b.request()
	}
}

// checkKnown returns an error if a device is exclusive and some holders are not known. The kubelet or the
// scheduler knows whether a slot of any other device is free. The caller holds the lock.
func (b *Book) checkKnown(w *Wanted) error {
	isUnknown := b.reading.unread != "" || b.unreadClaims != ""
	if w.Exclusive && isUnknown {
		return fmt.Errorf("device %q is exclusive: %s", w.ID, b.current().Blocked(*w))
	}
	return nil
}

// useOf is what a held device uses, nil if that is not known. The caller holds the lock.
func (b *Book) useOf(id string) *Device {
	use, isKnown := b.uses[id]
	if !isKnown {
		return nil
	}
	return &use
}

// Reserve records the devices of a claim, once for each slot, unless another container may have their
// hardware in another way, or has the slots. It replaces what the claim had. conflicts are the holders that
// exclude a device of the claim; then nothing is recorded.
func (b *Book) Reserve(claim string, devices []Wanted) (conflicts []Holder, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireGrants()
	holders := slices.DeleteFunc(b.holders(), func(h Holder) bool {
		return h.Claim == claim
	})
	slots := map[string]int{}
	for i := range devices {
		w := &devices[i]
		slots[w.ID]++
		if err := b.checkKnown(w); err != nil {
			return nil, err
		}
		var others []Holder // of slots of the same device
		for _, h := range holders {
			if h.excludes(b.useOf(h.ID), w) {
				conflicts = append(conflicts, h)
			} else if h.ID == w.ID {
				others = append(others, h)
			}
		}
		if len(others)+slots[w.ID] > w.Slots {
			conflicts = append(conflicts, others...)
		}
	}
	if len(conflicts) == 0 {
		b.setClaim(claim, devices)
	}
	order.Stable(conflicts, compareHolders)
	return conflicts, nil
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = map[string][]Holder{}
	b.unreadClaims = ""
	if unread != nil {
		b.unreadClaims = unread.Error()
	}
	b.view = nil
	for claim, devices := range claims {
		b.setClaim(claim, devices)
	}
}

// Await says whether something waits for the end of a hold. Meanwhile the ends of pods are followed.
func (b *Book) Await(waits bool) {
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
	b.mu.Lock()
	defer b.mu.Unlock()
	reasons := map[string]string{}
	for slot, pods := range b.pods {
		for _, p := range pods {
			if p.isRefused {
				reasons[slot] = reasonRunning(p.Pod)
			}
		}
	}
	return reasons
}
