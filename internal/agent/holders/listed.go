package holders

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// Listed reads the checkpoint if it has changed, and returns the resource of each slot that a pod
// holds or may hold according to it, including the pods that the kubelet has not started yet. Some
// of the pods may have ended: the kubelet does not write the checkpoint when it frees a device.
//
// isRead is false if the checkpoint exists and could not be read. A kubelet without a checkpoint has
// allocated nothing: it writes the file when it gets the list of a plugin
// (genericDeviceUpdateCallback, pkg/kubelet/cm/devicemanager/manager.go).
func (t *Tracker) Listed(ctx context.Context) (listed map[string]string, isRead bool) {
	if t == nil {
		return nil, true
	}
	if !t.awaitCurrent(ctx) {
		return nil, false
	}
	return t.LastListed(), true
}

// awaitCurrent reads the checkpoint if it has changed, and reports whether the latest version was read.
func (t *Tracker) awaitCurrent(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	for !t.isCurrent() {
		_, _, answered := t.reads.Do(ctx, t.options.Checkpoint, readPatience, t.readIfChanged)
		if !answered {
			return false
		}
		isMissing := checkpoint.Current(t.options.Checkpoint) == (checkpoint.Version{})
		if isMissing || t.isCurrent() {
			return true
		}
		// The kubelet has replaced the checkpoint during the read, as it does for each list that it
		// gets at a start.
		select {
		case <-ctx.Done():
			return false
		case <-time.After(listPause):
		}
	}
	return true
}

const (
	// listPatience limits the wait for a read of the latest checkpoint. It is shorter than Allocate
	// may take.
	listPatience = 500 * time.Millisecond
	// listPause is the time between two reads.
	listPause = 5 * time.Millisecond
)

// isCurrent reports whether the current version of the checkpoint was read.
func (t *Tracker) isCurrent() bool {
	current := checkpoint.Current(t.options.Checkpoint)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasTriedRead && current == t.version
}

// LastListed is Listed without a read of the checkpoint.
func (t *Tracker) LastListed() map[string]string {
	if t == nil {
		return nil
	}
	return t.heldBeside(nil, func(h hold) bool {
		return h.isListed || t.mayHold(h)
	})
}

// AddForgotten adds the slots that pods may hold although the kubelet does not list them to the held
// slots, so that no other resource offers their devices. held has the slots that the kubelet lists. It
// is partial if the checkpoint exists and could not be read.
func (t *Tracker) AddForgotten(ctx context.Context, held *ledger.Held) {
	if t == nil {
		return
	}
	if !t.awaitCurrent(ctx) {
		held.Partial = true
	}
	held.Unlisted = map[string]bool{}
	for slot, resource := range t.heldBeside(held.IDs, t.mayHold) {
		held.IDs[slot] = resource
		id, _ := device.SplitSlot(slot)
		held.Unlisted[id] = true
	}
}

// mayHold reports whether the pod of a hold may use its slot, now or when its next container starts,
// whether the kubelet lists it or not. It may as long as it has a cgroup. The kubelet makes the cgroup
// before it mounts the volumes of the pod, and removes it when the pod has ended (SyncPod and
// SyncTerminatedPod, pkg/kubelet/kubelet.go).
//
// Whether a process runs is not enough: the pod may still wait for a volume, and PodResources leaves
// out a device that only an init container holds. Whether the checkpoint has the pod says nothing: the
// kubelet writes it after a list of a device plugin without freeing the devices of the pods that it
// has forgotten (genericDeviceUpdateCallback, pkg/kubelet/cm/devicemanager/manager.go).
func (t *Tracker) mayHold(h hold) bool { return t.options.Cgroups.MayHavePod(h.podUID) }

// heldBeside returns the resources of the slots of which a hold counts, without the slots in ids.
func (t *Tracker) heldBeside(ids map[string]string, counts func(h hold) bool) map[string]string {
	others := map[string][]hold{}
	t.mu.Lock()
	for slot, holds := range t.holds {
		if _, isHeld := ids[slot]; !isHeld {
			others[slot] = slices.Clone(holds)
		}
	}
	t.mu.Unlock()
	held := map[string]string{}
	for slot, holds := range others { // counts reads files: without the lock
		for _, h := range holds {
			if counts(h) {
				held[slot] = h.resource
			}
		}
	}
	return held
}
