package holders

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
)

// Unhealthy returns why slots are unhealthy, by slot. The map must not be changed.
func (t *Tracker) Unhealthy() map[string]string {
	if t == nil {
		return nil
	}
	reasons := t.unhealthy.Load()
	if reasons == nil {
		return nil
	}
	return *reasons
}

// reasonRunning is why a slot cannot be allocated.
func reasonRunning(podUID string) string {
	return fmt.Sprintf("the kubelet has freed it, but processes of the pod with UID %s still run", podUID)
}

// refuse makes a slot unhealthy because of a pod. The caller holds the lock, and the loop of
// the agent logs the reason.
func (t *Tracker) refuse(slot, podUID string) {
	if t.refused[slot] == podUID {
		return
	}
	t.refused[slot] = podUID
	t.publish()
}

// release makes a refused slot healthy again. The caller holds the lock.
func (t *Tracker) release(slot, why string) {
	t.options.Log.Info("device is free of its forgotten pod",
		"id", slot,
		"pod_uid", t.refused[slot],
		"why", why,
	)
	delete(t.refused, slot)
	t.publish()
}

// publish publishes the reasons of the refused slots. The caller holds the lock.
func (t *Tracker) publish() {
	reasons := make(map[string]string, len(t.refused))
	for slot, podUID := range t.refused {
		reasons[slot] = reasonRunning(podUID)
	}
	t.unhealthy.Store(&reasons)
	t.options.Changed()
}

// review forgets the holds of pods that have ended, and refuses the slots of pods that run
// although the kubelet has forgotten them. It returns after which time to review again, 0 if
// there is no need.
func (t *Tracker) review(ctx context.Context) time.Duration {
	running := t.dropEnded()
	if len(running) > 0 {
		t.refuseForgotten(ctx, running)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.refused) > 0 {
		return refusedInterval
	}
	if len(running) > 0 {
		return unlistedInterval
	}
	return 0
}

// dropEnded drops the holds of pods that the checkpoint no longer has and that have no cgroup. It
// releases the refused slots of pods that do not run. The result has the UIDs of the pods that
// run although the checkpoint does not have them, by slot.
func (t *Tracker) dropEnded() (running map[string]string) {
	states := t.unlistedPods()
	remain := map[string]bool{}
	for podUID := range states { // this reads files: without the lock
		states[podUID] = t.podState(podUID)
		remain[podUID] = t.options.Cgroups.MayHavePod(podUID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	running = map[string]string{}
	for slot, holds := range t.holds {
		holds = slices.DeleteFunc(holds, func(past hold) bool {
			state, isChecked := states[past.podUID]
			hasEnded := isChecked && state == cgroup.Ended && !remain[past.podUID]
			return !past.isListed && hasEnded
		})
		t.holds[slot] = holds
		if len(holds) == 0 {
			delete(t.holds, slot)
		}
		for _, past := range holds {
			if !past.isListed && states[past.podUID] == cgroup.Running {
				running[slot] = past.podUID
			}
		}
	}
	for slot, podUID := range t.refused {
		state, isChecked := states[podUID]
		if isChecked && state != cgroup.Running {
			t.release(slot, "the pod is "+state.String())
		}
	}
	return running
}

// unlistedPods returns the UIDs of the pods that the checkpoint no longer has, and of the pods
// because of which slots are refused. Their states are unknown so far.
func (t *Tracker) unlistedPods() map[string]cgroup.PodState {
	t.mu.Lock()
	defer t.mu.Unlock()
	pods := map[string]cgroup.PodState{}
	for _, holds := range t.holds {
		for _, past := range holds {
			if !past.isListed {
				pods[past.podUID] = cgroup.Unknown
			}
		}
	}
	for _, podUID := range t.refused {
		pods[podUID] = cgroup.Unknown
	}
	return pods
}

// refuseForgotten refuses the slots of these running pods if the kubelet says that nobody holds
// the slot. The checkpoint does not prove that: somebody may have replaced the file while
// the kubelet runs.
func (t *Tracker) refuseForgotten(ctx context.Context, running map[string]string) {
	held, complete, err := t.options.Held(ctx)
	if err != nil || !complete {
		t.options.Log.Debug("it is unknown whether the kubelet has forgotten pods",
			"slots", len(running),
			"err", err,
		)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot, podUID := range running {
		isHeld := held[slot] != "" || hasListed(t.holds[slot])
		if !isHeld {
			t.refuse(slot, podUID)
		}
	}
}
