package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// sweepWithin bounds all requests of a sweep.
const sweepWithin = 10 * time.Second

// errAllocated is why another claim for the same device need not wait: the API server has allocated the
// device twice.
var errAllocated = errors.New("the API server has it, with its allocation")

// obstacle returns why a prepared claim has not ended, for an administrator, see holds.ClaimEvidence. It is
// nil if it has ended. known reports whether the kubelet lists a claim, nil if the kubelet was not asked.
//
// The kubelet is no source for the end of pods: it forgets a pod that was deleted with --force while the
// containers are in their grace period or hang in teardown. The List of PodResources has the pods of the pod
// manager (pkg/kubelet/apis/podresources, server_v1.go).
func (c *claims) obstacle(ctx context.Context, own *prepared, known func(cdi.Claim) bool) error {
	c.mu.Lock()
	e := c.evidence(own)
	c.mu.Unlock()
	reason := e.Hold()
	if !errors.Is(reason, holds.ErrRecorded) {
		return reason
	}
	if recorded := c.recordOf(ctx, own.Claim, known); recorded != nil {
		return recorded
	}
	e.IsAbsent = true
	return e.Hold()
}

// evidence is what this node knows about a claim. It records the state of the pods. It reads cgroups, and does
// not wait for another process. The caller holds c.mu.
func (c *claims) evidence(own *prepared) holds.ClaimEvidence {
	e := holds.ClaimEvidence{IsReleased: own.released, File: c.Claims.ClaimPath(own.UID)}
	e.Pods, e.RunningPod = c.podsState(own.Claim)
	switch e.Pods {
	case holds.PodRunning:
		own.ran = true
		own.runs = true
	case holds.PodEnded:
		own.runs = false
	}
	e.HaveRun = own.runs
	// Once a process of the pod was seen, only the end of the pod counts.
	if !own.ran {
		e.MayStartFor = c.StartWithin - time.Since(own.written)
	}
	return e
}

// recordOf is an error if the API server has a claim with its allocation, or the kubelet lists it: then the
// kubelet may be about to start a pod. It makes one request.
func (c *claims) recordOf(ctx context.Context, claim cdi.Claim, known func(cdi.Claim) bool) error {
	object, err := c.get(ctx, claim.Namespace, claim.Name)
	isGone := kubeapi.Code(err) == http.StatusNotFound
	if err != nil && !isGone {
		return err
	}
	// A later claim may have the same name.
	isSame := !isGone && object.Metadata.UID == claim.UID
	switch {
	case isSame && object.Status.Allocation != nil:
		return errAllocated
	case known == nil:
		return errors.New("the kubelet can't be asked for it")
	case known(claim):
		return errors.New("the kubelet lists it")
	}
	return nil
}

// podsState returns holds.PodRunning and the UID of the pod if one of the claim's pods runs, holds.PodEnded
// if none of them does, and holds.PodUnknown if that is not known. pod is empty unless one runs.
func (c *claims) podsState(claim cdi.Claim) (state holds.PodState, pod string) {
	if len(claim.Pods) == 0 {
		return holds.PodUnknown, ""
	}
	state = holds.PodEnded
	for _, uid := range claim.Pods {
		switch c.PodState(uid) {
		case holds.PodRunning:
			return holds.PodRunning, uid
		case holds.PodUnknown:
			state = holds.PodUnknown
		}
	}
	return state, ""
}

// notEnded returns the pods that are not known to have ended. It does not change pods.
func (c *claims) notEnded(pods []string) []string {
	return slices.DeleteFunc(slices.Clone(pods), func(uid string) bool {
		return c.PodState(uid).HasEnded()
	})
}

// heldError says which claims hold a device that another claim needs. A call that meets it waits,
// unless it is final.
type heldError struct {
	device  device.Ref
	holders []*prepared
	reasons []string // by holder, for the text of the error
	isFinal bool
}

// add adds why a holder has not ended.
func (e *heldError) add(holder *prepared, reason error) {
	e.reasons = append(e.reasons, fmt.Sprintf("claim %s (%s)", fullName(holder.Claim), reason))
	e.isFinal = e.isFinal || errors.Is(reason, errAllocated)
}

func (e *heldError) Error() string {
	return fmt.Sprintf("device %q: held by %s", e.device, strings.Join(e.reasons, ", "))
}

// clear removes a claim among the holders of a device that has ended, and returns errChanged: the requests
// to the API server take time, in which a device may stop being offered, so that the claim is filled and
// checked again. If none has ended, the error says why.
func (c *claims) clear(ctx context.Context, held *heldError) error {
	order.Sort(held.holders, func(a, b *prepared) int {
		return cmp.Compare(fullName(a.Claim), fullName(b.Claim))
	})
	// One answer serves all holders. It is nil if the kubelet does not answer.
	known, _ := c.Known(ctx)
	for _, holder := range held.holders {
		reason := c.obstacle(ctx, holder, known)
		if reason == nil {
			return cmp.Or(c.end(holder), errChanged)
		}
		held.add(holder, reason)
	}
	return held
}

// end removes a claim that has ended. The sources were asked without c.mu: a call that prepared the claim
// meanwhile made another one.
func (c *claims) end(own *prepared) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.byUID[own.UID]
	if now == nil {
		return nil // another call removed it
	}
	if now != own {
		return fmt.Errorf("claim %s was prepared again: %w", fullName(own.Claim), errChanged)
	}
	if err := c.release(own.UID); err != nil {
		return err
	}
	c.Log.Info("claim has ended: its CDI spec is removed",
		"claim", fullName(own.Claim),
		"uid", own.UID,
	)
	return nil
}

// followEnds removes claims that end without another call of the kubelet, until ctx is cancelled: released
// claims whose pods have no process left, which causes no event, and claims that are missing from an answer of
// the kubelet.
func (c *claims) followEnds(ctx context.Context) {
	delay := c.timing.poll
	for {
		var due <-chan time.Time
		if c.hasReleased() {
			due = time.After(delay)
		}
		var known func(cdi.Claim) bool
		select {
		case <-ctx.Done():
			return
		case <-c.released:
			delay = c.timing.poll
			continue
		case known = <-c.listed:
		case <-due:
			delay = nextDelay(delay)
		}
		c.sweep(ctx, known)
	}
}

// hasReleased reports whether a released claim waits for the end of its pods.
func (c *claims) hasReleased() bool {
	return slices.ContainsFunc(c.all(), func(own *prepared) bool {
		return c.isReleased(own)
	})
}

// isReleased reports whether the kubelet has released a claim.
func (c *claims) isReleased(own *prepared) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return own.released
}

// sweep removes the claims that have ended. It leaves out the ones that the kubelet has not released, and that
// it lists: they need no request to the API server. known is nil if the kubelet was not asked.
func (c *claims) sweep(ctx context.Context, known func(cdi.Claim) bool) {
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	for _, own := range c.all() {
		mayHaveEnded := c.isReleased(own) || known != nil && !known(own.Claim)
		if !mayHaveEnded || c.obstacle(ctx, own, known) != nil {
			continue
		}
		leave, err := c.Enter(ctx)
		if err != nil {
			return
		}
		_ = c.end(own) // it is repeated until the claim is gone
		leave()
	}
}

// unprepare removes a claim that the kubelet releases, once no process of its pods runs. It returns
// nil if the claim stays recorded because of its processes: after an error the kubelet could not end
// the pod.
func (c *claims) unprepare(ctx context.Context, uid string) error {
	leave, err := c.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return errGivenUp
	}
	own := c.byUID[uid]
	if own == nil {
		return c.release(uid)
	}
	wasReleased := own.released
	own.released = true
	reason := c.evidence(own).Hold()
	if reason == nil {
		return c.release(uid)
	}
	if !wasReleased {
		c.Log.Warn("the kubelet releases a claim whose pod still has processes: its devices stay held until these have ended",
			"claim", fullName(own.Claim),
			"reason", reason,
		)
		watch.Signal(c.released)
	}
	return nil
}
