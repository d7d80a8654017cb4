package holds

import (
	"errors"
	"fmt"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
)

// PodState says whether processes of a pod exist.
type PodState = cgroup.PodState

// The states of a pod. Ended means that there is no process.
const (
	PodUnknown = cgroup.Unknown
	PodRunning = cgroup.Running
	PodEnded   = cgroup.Ended
)

// The three rules about the end of a hold. They are the only ones.

// podEvidence is what is known about a pod that had a slot.
type podEvidence struct {
	// isNamed is set if the checkpoint names the pod with the slot. After a reboot the kubelet
	// restores its pods from the checkpoint without Allocate, and a pod that waits for its network,
	// or for its predecessor to end, has no cgroup yet.
	isNamed bool
	// state says whether the pod has a cgroup, with or without a process. The kubelet makes it
	// before it mounts the volumes of the pod, and removes it when the pod has ended (SyncPod and
	// SyncTerminatedPod, pkg/kubelet/kubelet.go). The kubelet forgets a pod that is deleted with
	// --force at once; its cgroup remains. A pod in back-off may have no process. If no cgroup is
	// visible, the kubelet decides.
	state PodState
}

// holds reports whether the pod may use the slot, now or when its next container starts. A slot
// that was granted and that the checkpoint does not have yet is held for grantTime as well, see
// Book.grants.
func (e podEvidence) holds() bool {
	hasCgroup := e.state == cgroup.Running || e.state == cgroup.Ended
	return e.isNamed || hasCgroup
}

// refusesSlot reports whether an Allocate call for a slot is refused because of another pod that had
// it. The call is the kubelet's own word that the slot is free, also after an empty cgroup or a
// grant: only running processes of that pod say otherwise. A state that is not known refuses
// nothing, because no device could ever be allocated a second time on a host without visible
// cgroups. The next version of an edited static pod gets the slot of its predecessor.
func refusesSlot(state cgroup.PodState, isSuccessor bool) bool {
	return state == cgroup.Running && !isSuccessor
}

// ClaimEvidence is what is known about a prepared claim.
type ClaimEvidence struct {
	// Pods is the state of its pods together, and RunningPod the UID of one that runs. A kubelet that
	// forgets a pod, which was deleted with --force, unprepares its claims while the containers run
	// (reconcileLoop, pkg/kubelet/cm/dra/manager.go).
	Pods       PodState
	RunningPod string
	// HaveRun is set if a process of one of its pods existed when their state was known last.
	HaveRun bool
	// IsReleased is set if the kubelet has called NodeUnprepareResources.
	IsReleased bool
	// IsAbsent is set if the API server has no such allocation and the kubelet does not list the
	// claim. A kubelet that has lost its own state never calls NodeUnprepareResources.
	IsAbsent bool
	// MayStartFor is how long a pod may still start, if no process of its pods was seen since the claim was
	// prepared. It is not positive if none may.
	MayStartFor time.Duration
	// File is the file of the claim.
	File string
}

// ErrRecorded is why a claim has not ended that the API server or the kubelet may have.
var ErrRecorded = errors.New("the API server or the kubelet may have it")

// Hold returns why the claim has not ended, for an administrator, and nil if it has. If the kubelet has
// released it, and no source ever knew its pods, the kubelet decides.
func (e ClaimEvidence) Hold() error {
	isUnseen := e.Pods == cgroup.Unknown
	switch {
	case e.Pods == cgroup.Running:
		return fmt.Errorf("processes of its pod %s still run", e.RunningPod)
	case isUnseen && e.HaveRun:
		return errors.New("processes of its pods ran when it was last seen, and no source knows whether they have ended: see --cgroup")
	case e.IsReleased:
		return nil
	case !e.IsAbsent:
		return ErrRecorded
	case isUnseen:
		return fmt.Errorf("no source tells whether its containers have ended: see --cgroup, or remove %s when they have", e.File)
	case e.MayStartFor > 0:
		return fmt.Errorf("it was prepared a moment ago, and its pod may start within %s", e.MayStartFor.Round(time.Second))
	}
	return nil
}
