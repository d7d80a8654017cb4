package holders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/kubelet/checkpoint"
)

// startPatience is how long the start of a container waits for a read of the kubelet's checkpoint.
// It does not block other pods, unlike Allocate.
const startPatience = 2 * time.Second

// StartingPod returns the UID of the pod that is about to start a container with a slot. It is an
// error if another pod may use the slot. The kubelet does not name the pod: it is the one that the
// checkpoint lists, because the kubelet writes the checkpoint when it admits a pod
// (allocateContainerResources, pkg/kubelet/cm/devicemanager/manager.go). Other containers of the pod
// may run, such as the former one of a container that restarts.
//
// Unlike Check, it also fails if the state of a pod is unknown: a reset interrupts whoever has the
// device.
func (t *Tracker) StartingPod(ctx context.Context, slot string) (podUID string, err error) {
	if err := t.options.Cgroups.Visible(); err != nil {
		return "", fmt.Errorf("it is unknown which pods run: %w: %s", err, t.options.CgroupHint)
	}
	if err := t.readLatest(ctx); err != nil {
		return "", err
	}
	for _, h := range t.holdsOf(slot) {
		hasEnded := t.podState(h.podUID) == cgroup.Ended
		if !hasEnded && !h.isListed {
			return "", fmt.Errorf("it is still used: %s", reasonRunning(h.podUID))
		}
		if !hasEnded && podUID != "" {
			return "", fmt.Errorf("the kubelet lists it for the pods with UIDs %s and %s, which both run", podUID, h.podUID)
		}
		if !hasEnded {
			podUID = h.podUID
		}
	}
	if podUID == "" {
		return "", errors.New("no pod that runs has it in the kubelet's checkpoint")
	}
	return podUID, nil
}

// readLatest reads the checkpoint unless it is the version that was read last.
func (t *Tracker) readLatest(ctx context.Context) error {
	for range maxReads {
		ok, _, answered := t.reads.Do(ctx, t.options.Checkpoint, startPatience, t.readIfChanged)
		if !answered || !ok {
			return errUnread
		}
		// A read that began before may have missed the latest version.
		t.mu.Lock()
		version := t.version
		t.mu.Unlock()
		if checkpoint.Current(t.options.Checkpoint) == version {
			return nil
		}
	}
	return errUnread
}

var errUnread = errors.New("the kubelet's checkpoint can't be read: it is unknown which pod has the device")
