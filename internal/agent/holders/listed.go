package holders

import (
	"context"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
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
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	for !t.isCurrent() {
		_, _, answered := t.reads.Do(ctx, t.options.Checkpoint, readPatience, t.readIfChanged)
		if !answered {
			return nil, false
		}
		isMissing := checkpoint.Current(t.options.Checkpoint) == (checkpoint.Version{})
		if isMissing || t.isCurrent() {
			break
		}
		// The kubelet has replaced the checkpoint during the read, as it does for each list that it
		// gets at a start.
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(listPause):
		}
	}
	return t.LastListed(), true
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
	listed := map[string]string{}
	for slot, holds := range t.holdsBeside(nil) {
		for _, h := range holds {
			if h.isListed || t.podState(h.podUID) == cgroup.Running {
				listed[slot] = h.resource
			}
		}
	}
	return listed
}

// MayStart reports whether a pod that has a cgroup holds a slot of a device according to the
// checkpoint. The kubelet does not list a device that only an init container holds, and the pod may
// have no process yet because it waits for a volume: the kubelet makes the cgroup before that
// (SyncPod, pkg/kubelet/kubelet.go), and removes it when the pod has ended.
func (t *Tracker) MayStart(id string) bool {
	if t == nil {
		return false
	}
	for slot, holds := range t.holdsBeside(nil) {
		base, _ := device.SplitSlot(slot)
		for _, h := range holds {
			if base == id && t.options.Cgroups.HasPod(h.podUID) {
				return true
			}
		}
	}
	return false
}
