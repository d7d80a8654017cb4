package holds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
)

const (
	// endPatience is how long Grant waits for the processes of the pod that had the slot before.
	// The kubelet frees the device of a pod after it has found none of its containers running
	// (SyncTerminatingPod, pkg/kubelet/kubelet.go). So the processes have ended already, but the
	// kernel may still be about to remove the last one.
	endPatience = 200 * time.Millisecond
	// endPollInterval is how often Grant checks in that time.
	endPollInterval = 10 * time.Millisecond
)

// checkSlots returns an error if a pod that had one of the slots still runs, see refusesSlot. From then
// on the slot is unhealthy until that pod has ended.
//
// The pod of the call itself never runs yet: the kubelet allocates all devices of a pod before it
// starts the first container, and after its own restart it skips containers that run
// (devicesToAllocate, pkg/kubelet/cm/devicemanager/manager.go).
func (b *Book) checkSlots(ctx context.Context, slots []Slot) error {
	if b.mustRead(slots) {
		b.catchUp(ctx, readPatience)
	}
	deadline := time.Now().Add(endPatience)
	for _, s := range slots {
		for _, past := range b.podsWith(s.ID) {
			state := b.stateUntil(ctx, past.pod, deadline)
			isSuccessor := state == cgroup.Running && b.maySucceed(ctx, past)
			if !refusesSlot(state, isSuccessor) {
				continue
			}
			b.refuse(s.ID, past.pod)
			b.request() // Run checks from now on whether the pod has ended
			b.Changed()
			return fmt.Errorf("device %q is still used: %s; the pod that gets it now must wait until they end",
				s.ID, reasonRunning(past.pod))
		}
	}
	return nil
}

// refuse makes a slot Unhealthy until a pod has ended.
func (b *Book) refuse(slot, pod string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := indexOfPod(b.pods[slot], pod); i >= 0 {
		b.pods[slot][i].isRefused = true
	}
}

// mustRead reports whether the checkpoint has to be read for slots: nothing was read so far, or it may
// name by now the pod to which one of them was granted.
func (b *Book) mustRead(slots []Slot) bool {
	b.mu.Lock()
	hasRead := b.reading.hasRead
	isGranted := slices.ContainsFunc(slots, func(s Slot) bool {
		_, isGranted := b.grants[s.ID]
		return isGranted
	})
	b.mu.Unlock()
	return !hasRead || isGranted
}

// podsWith returns the pods that have a slot or had it.
func (b *Book) podsWith(slot string) []podHold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pods[slot])
}

// stateUntil returns the state of a pod, and waits until the deadline for the end of one that runs.
func (b *Book) stateUntil(ctx context.Context, pod string, deadline time.Time) cgroup.PodState {
	for {
		state := b.podState(pod)
		if state == cgroup.Unknown {
			b.warnNoCgroups()
		}
		left := time.Until(deadline)
		isOver := left <= 0 || state != cgroup.Running
		if isOver || !sleep(ctx, min(left, endPollInterval)) {
			return state
		}
	}
}

// podState returns the state of a pod. A pod whose cgroup exists but cannot be read counts as
// running, for example while this program has no file descriptor left. The state is only unknown if
// the host's cgroups are not visible.
func (b *Book) podState(pod string) cgroup.PodState {
	state := b.Cgroups.PodState(pod)
	if state == cgroup.Unknown && b.Cgroups.Visible() == nil {
		return cgroup.Running
	}
	return state
}

// maySucceed reports whether a slot of a static pod may be allocated to the next version of that pod,
// whose manifest was edited. The kubelet admits the next version at once, while containers of the
// former version still run, and never tries again. It starts the next version when they have ended
// (allowStaticPodStart, pkg/kubelet/pod_workers.go). It does this for static pods only.
//
// A kubelet that has started since it named the hold has lost it. Then the pod that runs may be the
// current version of the static pod, and the call may be for any other pod.
func (b *Book) maySucceed(ctx context.Context, past podHold) bool {
	isSameKubelet := past.generation == b.Generation()
	if !isStatic(past.pod) || !isSameKubelet {
		return false
	}
	if past.staticName == "" {
		return true // the name could not be found
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	// The pod to be admitted is among them (HandlePodAdditions, pkg/kubelet/kubelet.go).
	pods, err := b.Pods(ctx)
	return err != nil || pods[past.staticName]
}

// reasonRunning is why a slot cannot be allocated.
func reasonRunning(pod string) string {
	return fmt.Sprintf("the kubelet has freed it, but processes of the pod with UID %s still run", pod)
}

// warnNoCgroups logs once that it is unknown whether pods run.
func (b *Book) warnNoCgroups() {
	err := b.Cgroups.Visible()
	isWanted := !errors.Is(err, cgroup.ErrNone)
	if err == nil || !isWanted {
		return
	}
	b.mu.Lock()
	wasLogged := b.logged.noCgroups
	b.logged.noCgroups = true
	b.mu.Unlock()
	if wasLogged {
		return
	}
	b.Log.Warn("the host's cgroups are not visible: a device of a pod that is deleted with --force may be allocated while its containers still run",
		"err", err,
		"hint", b.CgroupHint,
	)
}

// sleep waits for d and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
