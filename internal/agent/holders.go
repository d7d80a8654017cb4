package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

const (
	// endsWithin is how long Allocate waits for the processes of an earlier holder. The
	// kubelet frees the device of a pod when it has found none of its containers running
	// (SyncTerminatingPod, pkg/kubelet/kubelet.go), so that they have ended already; the
	// kernel may still be about to remove the last of them.
	endsWithin = 200 * time.Millisecond
	// endsPoll is the interval at which Allocate looks.
	endsPoll = 10 * time.Millisecond
	// readWithin is how long Allocate waits for the kubelet's checkpoint to be read.
	readWithin = 200 * time.Millisecond
	// lookAgain is the interval at which the pods of refused slots are checked: the end of
	// a process causes no event here.
	lookAgain = time.Second
	// askAgain is the same for pods that the checkpoint no longer has, whose slots the
	// kubelet has not freed as far as is known.
	askAgain = 10 * time.Second
	// maxHolds and maxHoldsPerSlot limit what is remembered.
	maxHolds        = 20_000
	maxHoldsPerSlot = 4
)

// holders remembers which pods hold which slots, so that no slot is allocated while an
// earlier holder still runs. The kubelet forgets a pod that is deleted with --force at
// once, and the pods of a checkpoint that is lost or replaced by an older one at its next
// start, and frees their devices; PodResources leaves such pods out. Their containers may
// run for as long as their grace period, or until somebody ends them.
//
// The checkpoint says which pod holds a slot, and the host's cgroups whether it runs.
// Allocate does not say for which pod it is. It is never for a running one: the kubelet
// allocates all devices of a pod before it starts the first container, and after its own
// restart it skips containers that run (devicesToAllocate,
// pkg/kubelet/cm/devicemanager/manager.go). A pod that runs and had the slot is therefore
// another one.
//
// All methods but run are safe for concurrent use, and for nil.
type holders struct {
	path string // of the checkpoint
	tree *cgroup.Tree
	// ours reports whether a resource is this program's.
	ours func(resource string) bool
	// held returns the slots that the kubelet says are held, with "namespace/name" of the
	// holder. The answer is incomplete if the kubelet may lack pods.
	held func(ctx context.Context) (holders map[string]string, complete bool, err error)
	// pods returns "namespace/name" of all pods that the kubelet has.
	pods func(ctx context.Context) (map[string]bool, error)
	// generation counts the starts of the kubelet.
	generation func() uint64

	log     *slog.Logger
	hint    string // of --cgroup
	wake    signal // the loop has to publish reasons or save holds
	request signal // read the checkpoint

	reads slow.Calls[string, bool] // of the checkpoint

	mu      sync.Mutex
	looked  bool               // a read was tried
	offered int                // counts the sets of resources
	version checkpoint.Version // of the last read, zero for none
	slots   map[string][]hold  // the holds by slot
	granted map[string]bool    // slots of Allocate calls that the checkpoint has not shown yet
	refused map[string]string  // the UID of the pod that still runs, by slot
	blind   bool               // it was logged that no cgroup is visible
	full    bool               // it was logged that holds are left out
	failed  string             // the last error of a read, as logged

	// reasons are why slots are not healthy, by slot. The map is immutable.
	reasons atomic.Pointer[map[string]string]
}

// hold is a pod that holds a slot or held it last.
type hold struct {
	uid, resource string
	listed        bool   // the last checkpoint has it
	name          string // "namespace/name" of a static pod; empty if not known
	generation    uint64 // of the kubelet whose checkpoint had it last; 0 if not known
}

func newHolders(path string, tree *cgroup.Tree, wake signal, log *slog.Logger) *holders {
	return &holders{
		path:    path,
		tree:    tree,
		wake:    wake,
		log:     log,
		request: newSignal(),
		slots:   map[string][]hold{},
		granted: map[string]bool{},
		refused: map[string]string{},
	}
}

// run follows the checkpoint until ctx is cancelled, which is no error.
func (h *holders) run(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	begun := time.After(askAgain)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-h.request:
		case <-timer.C:
		case <-begun:
			h.warnBlind() // by now the kubelet has made its cgroups, if it is there
			continue
		}
		h.reads.Do(ctx, h.path, time.Minute, h.readChanged)
		h.nameStatic(ctx)
		next := h.settle(ctx)
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// readChanged reads the checkpoint if it is another one than last time. A missing one says
// nothing: the kubelet makes the next one from its memory.
func (h *holders) readChanged() bool {
	h.mu.Lock()
	h.looked = true
	last := h.version
	offered := h.offered
	h.mu.Unlock()
	if now := checkpoint.Current(h.path); now == last || now == (checkpoint.Version{}) {
		return true
	}
	found := map[string][]hold{}
	generation := h.generation()
	count := 0
	cut := false
	version, err := checkpoint.Read(h.path, func(a checkpoint.Allocation) bool {
		if !h.ours(a.Resource) {
			return true
		}
		for _, id := range a.IDs {
			isKnown := slices.ContainsFunc(found[id], func(known hold) bool { return known.uid == a.PodUID })
			if isKnown {
				continue
			}
			cut = count >= maxHolds
			if cut {
				return false
			}
			found[id] = append(found[id], hold{
				uid:        a.PodUID,
				resource:   a.Resource,
				listed:     true,
				generation: generation,
			})
			count++
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logRead(err, cut)
	if err != nil {
		return false
	}
	h.version = version
	h.merge(found)
	if h.offered != offered {
		h.outdate()
	}
	return true
}

// logRead logs a read that failed or was cut, once.
func (h *holders) logRead(err error, cut bool) {
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // it was there a moment ago
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != h.failed && err != nil {
		h.log.Warn("the kubelet's checkpoint can't be read: pods that it forgets later are not noticed", "err", err)
	}
	h.failed = text
	if cut && !h.full {
		h.log.Warn("the kubelet's checkpoint has too many devices: the rest of their pods is not remembered",
			"limit", maxHolds,
		)
	}
	h.full = cut
}

// merge replaces the listed holds by those that were found, and keeps the others.
func (h *holders) merge(found map[string][]hold) {
	for slot, old := range h.slots {
		for _, past := range old {
			i := slices.IndexFunc(found[slot], func(now hold) bool { return now.uid == past.uid })
			if i >= 0 {
				found[slot][i].name = past.name
			}
			if i >= 0 || len(found[slot]) >= maxHoldsPerSlot {
				continue
			}
			past.listed = false
			found[slot] = append(found[slot], past)
		}
	}
	// The kubelet's checkpoint shows what Allocate returned.
	for slot := range h.granted {
		if slices.ContainsFunc(found[slot], func(now hold) bool { return now.listed }) {
			delete(h.granted, slot)
		}
	}
	for slot, uid := range h.refused {
		if slices.ContainsFunc(found[slot], func(now hold) bool {
			return now.listed && now.uid == uid
		}) {
			h.release(slot, "the kubelet has the pod again")
		}
	}
	h.slots = found
}

// check returns an error for the first slot whose earlier holder still runs.
func (h *holders) check(ctx context.Context, ids []string) error {
	if h == nil {
		return nil
	}
	h.catchUp(ctx, ids)
	deadline := time.Now().Add(endsWithin)
	for _, id := range ids {
		for _, past := range h.of(id) {
			if !h.stillRuns(ctx, past.uid, deadline) || h.mayBeSuccessor(ctx, past) {
				continue
			}
			h.mu.Lock()
			h.refuse(id, past.uid)
			h.mu.Unlock()
			h.request.send() // for the timer
			return fmt.Errorf("device %q is still used: %s; the pod that gets it now must wait until they end",
				id, reasonRunning(past.uid))
		}
	}
	return nil
}

// reasonRunning is why a slot can't be allocated.
func reasonRunning(uid string) string {
	return fmt.Sprintf("the kubelet has freed it, but processes of the pod with UID %s still run", uid)
}

// maxReads is how often Allocate reads the checkpoint at most: the kubelet may replace it
// during a read.
const maxReads = 3

// catchUp reads the checkpoint if it may have holds of these slots that are not known yet.
func (h *holders) catchUp(ctx context.Context, ids []string) {
	for range maxReads {
		if !h.mustRead(ids) {
			return
		}
		if _, _, ok := h.reads.Do(ctx, h.path, readWithin, h.readChanged); !ok {
			return
		}
	}
}

// mustRead reports whether nothing was read so far, or a slot was allocated since.
func (h *holders) mustRead(ids []string) bool {
	h.mu.Lock()
	looked := h.looked
	version := h.version
	isNew := slices.ContainsFunc(ids, func(id string) bool { return h.granted[id] })
	h.mu.Unlock()
	return !looked || isNew && checkpoint.Current(h.path) != version
}

// grant records slots that were allocated just now. The checkpoint will have them.
func (h *holders) grant(ids []string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if len(h.granted) < maxHolds {
			h.granted[id] = true
		}
	}
}

// of returns the holds of a slot.
func (h *holders) of(slot string) []hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.slots[slot])
}

// stillRuns reports whether a pod runs, also at the deadline. Whether a pod runs may be
// unknown: it counts as ended, since otherwise nothing could be allocated twice.
func (h *holders) stillRuns(ctx context.Context, uid string, deadline time.Time) bool {
	for {
		state := h.tree.PodState(uid)
		if state == cgroup.Unknown {
			h.warnBlind()
		}
		if state != cgroup.Running {
			return false
		}
		left := time.Until(deadline)
		if left <= 0 || !sleep(ctx, min(left, endsPoll)) {
			return true
		}
	}
}

// isStatic reports whether the UID is one of a static pod: the kubelet makes a hash of its
// manifest (applyDefaults, pkg/kubelet/config/common.go), and an API server an RFC 4122 UUID.
func isStatic(uid string) bool {
	isUUID := len(uid) == 36 && uid[8] == '-' && uid[13] == '-' && uid[18] == '-' && uid[23] == '-'
	return !isUUID
}

// mayBeSuccessor reports whether a slot of a static pod may be allocated for the next
// version of that pod, whose manifest was edited. The kubelet admits it at once, while the
// containers of the former version still run, and would never admit it again. It starts it
// when they have ended (allowStaticPodStart, pkg/kubelet/pod_workers.go), which it does for
// no other pod. A kubelet that has started since then and does not know the hold has lost
// it: the pod may be the former version itself.
func (h *holders) mayBeSuccessor(ctx context.Context, past hold) bool {
	if !isStatic(past.uid) || past.generation != h.generation() {
		return false
	}
	if past.name == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	pods, err := h.pods(ctx) // the one to be admitted is among them (HandlePodAdditions)
	return err != nil || pods[past.name]
}

// nameStatic finds the names of the static pods that hold slots.
func (h *holders) nameStatic(ctx context.Context) {
	h.mu.Lock()
	isMissing := false
	for _, holds := range h.slots {
		isMissing = isMissing || slices.ContainsFunc(holds, hold.lacksName)
	}
	h.mu.Unlock()
	if !isMissing {
		return
	}
	held, _, err := h.held(ctx)
	if err != nil {
		return // the next version of a pod may get its device meanwhile, and so may others
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for slot, holds := range h.slots {
		for i := range holds {
			if holds[i].lacksName() {
				holds[i].name = held[slot]
			}
		}
	}
}

// lacksName reports whether the name of a static pod can still be found.
func (p hold) lacksName() bool { return p.listed && p.name == "" && isStatic(p.uid) }

// warnBlind logs once that it is unknown whether pods run.
func (h *holders) warnBlind() {
	err := h.tree.Visible()
	if err == nil || errors.Is(err, cgroup.ErrNone) {
		return
	}
	h.mu.Lock()
	logged := h.blind
	h.blind = true
	h.mu.Unlock()
	if !logged {
		h.log.Warn("the host's cgroups are not visible: a device of a pod that is deleted with --force may be allocated while its containers still run",
			"err", err, "hint", h.hint)
	}
}

// refuse makes a slot unhealthy because of a pod; h.mu is locked.
func (h *holders) refuse(slot, uid string) {
	if h.refused[slot] == uid {
		return
	}
	h.refused[slot] = uid
	h.publish() // the loop logs it
}

// release ends that; h.mu is locked.
func (h *holders) release(slot, why string) {
	h.log.Info("device is free of its forgotten pod", "id", slot, "pod_uid", h.refused[slot], "why", why)
	delete(h.refused, slot)
	h.publish()
}

// publish publishes the reasons and has the loop use them; h.mu is locked.
func (h *holders) publish() {
	reasons := make(map[string]string, len(h.refused))
	for slot, uid := range h.refused {
		reasons[slot] = reasonRunning(uid)
	}
	h.reasons.Store(&reasons)
	h.wake.send()
}

// unhealthy returns why slots are not healthy, by slot.
func (h *holders) unhealthy() map[string]string {
	if h == nil {
		return nil
	}
	if reasons := h.reasons.Load(); reasons != nil {
		return *reasons
	}
	return nil
}

// settle forgets holds that have ended, and looks for pods that run although the kubelet
// has forgotten them. It returns when to do so again, zero for never.
func (h *holders) settle(ctx context.Context) time.Duration {
	running := h.sortOut()
	if len(running) > 0 {
		h.refuseForgotten(ctx, running)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.refused) > 0 {
		return lookAgain
	} else if len(running) > 0 {
		return askAgain
	} else {
		return 0
	}
}

// sortOut drops unlisted holds of pods that have ended, and returns the others that run, by
// slot. It releases the refused slots of pods that do not run.
func (h *holders) sortOut() (running map[string]string) {
	h.mu.Lock()
	unlisted := map[string]cgroup.PodState{} // by UID
	for _, holds := range h.slots {
		for _, past := range holds {
			if !past.listed {
				unlisted[past.uid] = cgroup.Unknown
			}
		}
	}
	for _, uid := range h.refused {
		unlisted[uid] = cgroup.Unknown
	}
	h.mu.Unlock()
	for uid := range unlisted {
		unlisted[uid] = h.tree.PodState(uid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	running = map[string]string{}
	for slot, holds := range h.slots {
		holds = slices.DeleteFunc(holds, func(past hold) bool {
			state, looked := unlisted[past.uid]
			return !past.listed && looked && state == cgroup.Ended
		})
		h.slots[slot] = holds
		if len(holds) == 0 {
			delete(h.slots, slot)
		}
		for _, past := range holds {
			if !past.listed && unlisted[past.uid] == cgroup.Running {
				running[slot] = past.uid
			}
		}
	}
	for slot, uid := range h.refused {
		if state, looked := unlisted[uid]; looked && state != cgroup.Running {
			h.release(slot, "the pod is "+state.String())
		}
	}
	return running
}

// refuseForgotten makes slots unhealthy whose pods run although the kubelet says that
// nobody holds the slot. Its checkpoint alone does not prove that: somebody may have
// replaced the file of a running kubelet.
func (h *holders) refuseForgotten(ctx context.Context, running map[string]string) {
	held, complete, err := h.held(ctx)
	if err != nil || !complete {
		h.log.Debug("it is unknown whether the kubelet has forgotten pods", "slots", len(running), "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for slot, uid := range running {
		isListed := slices.ContainsFunc(h.slots[slot], func(now hold) bool { return now.listed })
		if held[slot] == "" && !isListed {
			h.refuse(slot, uid)
		}
	}
}

// addForgotten adds the slots of pods that run although the kubelet has forgotten them to
// the held ones.
func (h *holders) addForgotten(held *ledger.Held) {
	if h == nil {
		return
	}
	running := h.sortOut()
	h.mu.Lock()
	defer h.mu.Unlock()
	for slot, uid := range running {
		if _, known := held.IDs[slot]; known {
			continue
		}
		for _, past := range h.slots[slot] {
			if past.uid == uid {
				held.IDs[slot] = past.resource
			}
		}
	}
}

// readAgain reads the checkpoint for another set of resources.
func (h *holders) readAgain() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outdate()
}

// outdate has the checkpoint read again although it is the same; h.mu is locked.
func (h *holders) outdate() {
	h.offered++
	h.version = checkpoint.Version{}
	h.looked = false
	h.request.send()
}

// save returns the holds to persist, sorted.
func (h *holders) save() []ledger.Hold {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []ledger.Hold
	for _, slot := range slices.Sorted(maps.Keys(h.slots)) {
		for _, now := range h.slots[slot] {
			all = append(all, ledger.Hold{
				Slot:     slot,
				Pod:      now.uid,
				Resource: now.resource,
				Name:     now.name,
			})
		}
	}
	return all
}

// restore continues with holds of this boot that an earlier instance saved.
func (h *holders) restore(saved []ledger.Hold) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, past := range saved {
		isKnown := slices.ContainsFunc(h.slots[past.Slot], func(now hold) bool { return now.uid == past.Pod })
		if isKnown || i >= maxHolds || len(h.slots[past.Slot]) >= maxHoldsPerSlot {
			continue
		}
		h.slots[past.Slot] = append(h.slots[past.Slot], hold{uid: past.Pod, resource: past.Resource, name: past.Name})
	}
	h.request.send()
}
