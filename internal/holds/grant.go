package holds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
)

const (
	// grantTime is how long a slot counts as held after an Allocate call until the checkpoint has
	// it. The kubelet writes it within milliseconds after the call, unless its node is overloaded.
	grantTime = time.Minute
	// endPatience is how long Grant waits for the processes of the pod that had the slot before.
	// The kubelet frees the device of a pod after it has found none of its containers running
	// (SyncTerminatingPod, pkg/kubelet/kubelet.go). So the processes have ended already, but the
	// kernel may still be about to remove the last one.
	endPatience = 200 * time.Millisecond
	// endPollInterval is how often Grant checks in that time.
	endPollInterval = 10 * time.Millisecond
)

// grant is a slot that an Allocate call returned.
type grant struct {
	resource string
	at       time.Time
	// before are the pods that had the slot: the pod of the call is another one.
	before []podHold
}

// isTakenBy reports whether the checkpoint shows the pod of the call by now.
func (g *grant) isTakenBy(pods []podHold) bool {
	return slices.ContainsFunc(pods, func(p podHold) bool {
		return p.isNamed && indexOfPod(g.before, p.Pod) < 0
	})
}

// Grant records that a container gets slots of devices of one resource, unless another container may have
// their hardware, or the pod that had a slot before still runs. The error names the device and its holder.
// The record is written before Grant returns. The caller calls cancel if the container does not get
// them after all.
func (b *Book) Grant(ctx context.Context, devices []Wanted, slots []string) (cancel func(), err error) {
	if err := CheckWithin(devices); err != nil {
		return nil, err
	}
	if err := b.checkSlots(ctx, slots); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireGrants()
	isExclusive := false
	for i := range devices {
		w := &devices[i]
		isExclusive = isExclusive || w.Exclusive
		if err := b.checkKnown(w); err != nil {
			return nil, err
		}
		if reason := b.refuses(w); reason != "" {
			return nil, fmt.Errorf("device %q: %s: it can be allocated when that container has ended", w.ID, reason)
		}
	}
	for _, w := range devices {
		b.uses[w.ID] = w.Device
	}
	for _, slot := range slots {
		b.grants[slot] = grant{
			resource: devices[0].Resource,
			at:       b.Now(),
			before:   slices.Clone(b.pods[slot]),
		}
	}
	b.changed()
	if err := b.save(); err != nil && isExclusive {
		b.undo(slots)
		return nil, fmt.Errorf("device %q is exclusive, and its use cannot be recorded: %w", devices[0].ID, err)
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.undo(slots)
		b.request()
	}, nil
}

// undo removes the grants of slots. The caller holds the lock.
func (b *Book) undo(slots []string) {
	for _, slot := range slots {
		delete(b.grants, slot)
	}
	b.changed()
}

// refuses returns why an Allocate call for a device is refused. It compares each hold, because each call
// changes them: a View would be made for one call. The caller holds the lock.
func (b *Book) refuses(w *Wanted) string {
	for _, h := range b.holders() {
		use := b.useOf(h.ID)
		if h.excludes(use, w) {
			return h.reason(use, w)
		}
	}
	return ""
}

// expireGrants drops the grants that no pod has taken in time, according to the latest checkpoint, and
// reports whether there were some. The caller holds the lock.
func (b *Book) expireGrants() bool {
	hasExpired := false
	for slot, g := range b.grants {
		isYoung := b.Now().Before(g.at.Add(grantTime))
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

// checkSlots returns an error if a pod that had one of the slots still runs, see refusesSlot. From then
// on the slot is unhealthy until that pod has ended.
//
// The pod of the call itself never runs yet: the kubelet allocates all devices of a pod before it
// starts the first container, and after its own restart it skips containers that run
// (devicesToAllocate, pkg/kubelet/cm/devicemanager/manager.go).
func (b *Book) checkSlots(ctx context.Context, slots []string) error {
	if b.mustRead(slots) {
		b.catchUp(ctx, readPatience)
	}
	deadline := time.Now().Add(endPatience)
	for _, slot := range slots {
		for _, past := range b.podsWith(slot) {
			state := b.stateUntil(ctx, past.Pod, deadline)
			isSuccessor := state == cgroup.Running && b.maySucceed(ctx, past)
			if !refusesSlot(state, isSuccessor) {
				continue
			}
			b.refuse(slot, past.Pod)
			b.request() // Run checks from now on whether the pod has ended
			b.Changed()
			return fmt.Errorf("device %q is still used: %s; the pod that gets it now must wait until they end",
				slot, reasonRunning(past.Pod))
		}
	}
	return nil
}

// mustRead reports whether the checkpoint has to be read for slots: nothing was read so far, or it may
// name by now the pod to which one of them was granted.
func (b *Book) mustRead(slots []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isGranted := slices.ContainsFunc(slots, func(slot string) bool {
		return b.grants[slot].resource != ""
	})
	return isGranted || !b.reading.hasRead
}

// podsWith returns the pods that have a slot or had it.
func (b *Book) podsWith(slot string) []podHold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pods[slot])
}

// refuse makes a slot Unhealthy until a pod has ended.
func (b *Book) refuse(slot, pod string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := indexOfPod(b.pods[slot], pod); i >= 0 {
		b.pods[slot][i].isRefused = true
	}
}

// stateUntil returns the state of a pod, and waits until the deadline for the end of one that runs.
func (b *Book) stateUntil(ctx context.Context, pod string, deadline time.Time) cgroup.PodState {
	for {
		state := b.Cgroups.PodState(pod)
		if state == cgroup.Unknown {
			b.warnNoCgroups()
		}
		left := time.Until(deadline)
		if left <= 0 || state != cgroup.Running {
			return state
		}
		select {
		case <-ctx.Done():
			return state
		case <-time.After(min(left, endPollInterval)):
		}
	}
}

// maySucceed reports whether a slot of a static pod may be allocated to the next version of that pod,
// whose manifest was edited. The kubelet admits the next version at once, while containers of the
// former version still run, and never tries again. It starts the next version when they have ended
// (allowStaticPodStart, pkg/kubelet/pod_workers.go). It does this for static pods only.
//
// A kubelet that has started since it named the hold has lost it. Then the pod that runs may be the
// current version of the static pod, and the call may be for any other pod. The same applies if the name is
// not known, or if the kubelet does not answer.
func (b *Book) maySucceed(ctx context.Context, past podHold) bool {
	isSameKubelet := past.generation == b.Generation()
	isNamed := past.StaticName != "" // only static pods are
	if !isNamed || !isSameKubelet {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	// The pod to be admitted is among them (HandlePodAdditions, pkg/kubelet/kubelet.go).
	pods, err := b.Pods(ctx)
	return err == nil && pods[past.StaticName]
}

// isStatic reports whether a UID belongs to a static pod: the kubelet makes it from a hash of
// the manifest (applyDefaults, pkg/kubelet/config/common.go), and an API server makes an
// RFC 4122 UUID.
func isStatic(uid string) bool { return !strings.Contains(uid, "-") }

// reasonRunning is why a slot cannot be allocated.
func reasonRunning(pod string) string {
	return fmt.Sprintf("the kubelet has freed it, but processes of the pod with UID %s still run", pod)
}
