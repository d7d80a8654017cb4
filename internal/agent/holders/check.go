package holders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
)

const (
	// endPatience is how long Allocate waits for the processes of the pod that held the
	// slot before. The kubelet frees the device of a pod after it has found none of its
	// containers running (SyncTerminatingPod, pkg/kubelet/kubelet.go). So the processes
	// have ended already, but the kernel may still be about to remove the last one.
	endPatience = 200 * time.Millisecond
	// endPollInterval is how often Allocate checks in that time.
	endPollInterval = 10 * time.Millisecond
)

// Check returns an error if the pod that held one of the slots before still runs. From then on
// the slot is unhealthy until that pod has ended.
func (t *Tracker) Check(ctx context.Context, slots []string) error {
	if t == nil {
		return nil
	}
	t.catchUp(ctx, slots)
	deadline := time.Now().Add(endPatience)
	for _, slot := range slots {
		for _, past := range t.holdsOf(slot) {
			if !t.stillRuns(ctx, past.podUID, deadline) || t.mayBeSuccessor(ctx, past) {
				continue
			}
			t.mu.Lock()
			t.refuse(slot, past.podUID)
			t.mu.Unlock()
			t.request() // Run checks from now on whether the pod has ended
			return fmt.Errorf("device %q is still used: %s; the pod that gets it now must wait until they end",
				slot, reasonRunning(past.podUID))
		}
	}
	return nil
}

// Granted records slots that an Allocate call has just returned. The next version of the
// checkpoint will have them.
func (t *Tracker) Granted(slots []string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, slot := range slots {
		if len(t.granted) < maxHolds {
			t.granted[slot] = true
		}
	}
}

// podState returns the state of a pod. A pod whose cgroup exists but cannot be read counts as
// running, for example while this program has no file descriptor left. The state is only unknown if
// the host's cgroups are not visible.
func (t *Tracker) podState(podUID string) cgroup.PodState {
	state := t.options.Cgroups.PodState(podUID)
	if state == cgroup.Unknown && t.options.Cgroups.Visible() == nil {
		return cgroup.Running
	}
	return state
}

// stillRuns reports whether a pod still runs at the deadline. A pod whose state is unknown
// counts as ended: otherwise no device could ever be allocated a second time on a host without
// visible cgroups.
func (t *Tracker) stillRuns(ctx context.Context, podUID string, deadline time.Time) bool {
	for {
		state := t.podState(podUID)
		if state == cgroup.Unknown {
			t.warnNoCgroups()
		}
		if state != cgroup.Running {
			return false
		}
		left := time.Until(deadline)
		if left <= 0 || !sleep(ctx, min(left, endPollInterval)) {
			return true
		}
	}
}

// mayBeSuccessor reports whether a slot of a static pod may be allocated to the next version of
// that pod, whose manifest was edited. The kubelet admits the next version at once, while
// containers of the former version still run, and never tries again. It starts the next
// version when they have ended (allowStaticPodStart, pkg/kubelet/pod_workers.go). It does this
// for static pods only.
//
// A kubelet that has started since it listed the hold has lost it. Then the pod that runs may
// be the current version of the static pod, and the call may be for any other pod.
func (t *Tracker) mayBeSuccessor(ctx context.Context, past hold) bool {
	isSameKubelet := past.generation == t.options.Generation()
	if !isStatic(past.podUID) || !isSameKubelet {
		return false
	}
	if past.staticName == "" {
		return true // the name could not be found
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	// The pod to be admitted is among them (HandlePodAdditions, pkg/kubelet/kubelet.go).
	pods, err := t.options.Pods(ctx)
	return err != nil || pods[past.staticName]
}

// isStatic reports whether a UID belongs to a static pod: the kubelet makes it from a hash of
// the manifest (applyDefaults, pkg/kubelet/config/common.go), and an API server makes an
// RFC 4122 UUID.
func isStatic(uid string) bool {
	isUUID := len(uid) == 36 && uid[8] == '-' && uid[13] == '-' && uid[18] == '-' && uid[23] == '-'
	return !isUUID
}

// nameStaticPods finds the names of the static pods that hold slots. Only the UID of a pod
// changes when its manifest is edited. After an error the names stay unknown: then the next
// version of a static pod may get its device, and so may another pod.
func (t *Tracker) nameStaticPods(ctx context.Context) {
	if !t.lacksStaticName() {
		return
	}
	pods, _, err := t.options.Held(ctx)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot, holds := range t.holds {
		for i := range holds {
			if holds[i].lacksStaticName() {
				holds[i].staticName = pods[slot]
			}
		}
	}
}

// lacksStaticName reports whether the name of a static pod is unknown and can be found.
func (t *Tracker) lacksStaticName() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, holds := range t.holds {
		for _, h := range holds {
			if h.lacksStaticName() {
				return true
			}
		}
	}
	return false
}

// lacksStaticName reports whether the name of a static pod is unknown and can be found: the
// kubelet names the holders of listed holds only.
func (h hold) lacksStaticName() bool {
	return h.isListed && h.staticName == "" && isStatic(h.podUID)
}

// warnNoCgroups logs once that it is unknown whether pods run.
func (t *Tracker) warnNoCgroups() {
	err := t.options.Cgroups.Visible()
	isWanted := !errors.Is(err, cgroup.ErrNone)
	if err == nil || !isWanted {
		return
	}
	t.mu.Lock()
	wasLogged := t.logged.noCgroups
	t.logged.noCgroups = true
	t.mu.Unlock()
	if wasLogged {
		return
	}
	t.options.Log.Warn("the host's cgroups are not visible: a device of a pod that is deleted with --force may be allocated while its containers still run",
		"err", err,
		"hint", t.options.CgroupHint,
	)
}
