package dra

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/order"
)

// obstacle is why a claim has not ended, for an administrator. The zero value means that it has ended.
type obstacle struct {
	text string
	// isFinal is set if another claim for the same device need not wait: the API server has allocated the
	// device twice.
	isFinal bool
}

// none reports whether the claim has ended.
func (o obstacle) none() bool { return o.text == "" }

// obstacle returns why a prepared claim has not ended, see holds.ClaimEvidence.
//
// The kubelet is no source for the end of pods: it forgets a pod that was deleted with --force while the
// containers are in their grace period or hang in teardown. The List of PodResources has the pods of the pod
// manager (pkg/kubelet/apis/podresources, server_v1.go).
func (c *claims) obstacle(ctx context.Context, own *prepared, known func(cdi.Claim) bool) obstacle {
	e, pod := c.evidenceNow(own)
	if e.Hold() == holds.HeldByRecord {
		recorded := c.recordOf(ctx, own.Claim, known)
		if !recorded.none() {
			return recorded
		}
		e.IsAbsent = true
	}
	return c.textOf(e.Hold(), own, pod)
}

// evidenceNow is evidence for a caller that does not hold c.mu.
func (c *claims) evidenceNow(own *prepared) (e holds.ClaimEvidence, pod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evidence(own)
}

// heldAfterRelease is obstacle for a claim that the kubelet releases now, or has released. The caller
// holds c.mu.
func (c *claims) heldAfterRelease(own *prepared) obstacle {
	e, pod := c.evidence(own)
	e.IsReleased = true
	return c.textOf(e.Hold(), own, pod)
}

// evidence is what this node knows about a claim, and the UID of a pod of it that runs. It records the state
// of the pods. It reads cgroups, and does not wait for another process. The caller holds c.mu.
func (c *claims) evidence(own *prepared) (e holds.ClaimEvidence, pod string) {
	e.Pods, pod = c.podsState(own.Claim)
	switch e.Pods {
	case holds.PodRunning:
		own.ran = true
		own.runs = true
	case holds.PodEnded:
		own.runs = false
	}
	e.HaveRun = own.runs
	e.IsReleased = own.released
	// Once a process of the pod was seen, only the end of the pod counts.
	e.MayStart = !own.ran && time.Since(own.written) < c.StartWithin
	return e, pod
}

// textOf returns the text of a reason, except HeldByRecord, see recordOf. pod is the UID of the pod that runs.
func (c *claims) textOf(hold holds.ClaimHold, own *prepared, pod string) obstacle {
	switch hold {
	case holds.NotHeld:
		return obstacle{}
	case holds.HeldByPod:
		return obstacle{text: fmt.Sprintf("processes of its pod %s still run", pod)}
	case holds.HeldByLostPod:
		return obstacle{text: "processes of its pods ran when it was last seen, and no source knows whether they have ended: see --cgroup"}
	case holds.HeldByUnseenPod:
		path := c.Claims.ClaimPath(own.UID)
		return obstacle{text: fmt.Sprintf("no source tells whether its containers have ended: see --cgroup, or remove %s when they have", path)}
	}
	left := c.StartWithin - time.Since(own.written)
	return obstacle{text: fmt.Sprintf("it was prepared a moment ago, and its pod may start within %s", left.Round(time.Second))}
}

// recordOf returns whether the API server has a claim with its allocation, or the kubelet lists it: then the
// kubelet may be about to start a pod. It makes one request.
func (c *claims) recordOf(ctx context.Context, claim cdi.Claim, known func(cdi.Claim) bool) obstacle {
	object, err := c.get(ctx, claim.Namespace, claim.Name)
	isGone := kubeapi.Code(err) == http.StatusNotFound
	if err != nil && !isGone {
		return obstacle{text: err.Error()}
	}
	// A later claim may have the same name.
	isSame := !isGone && object.Metadata.UID == claim.UID
	switch {
	case isSame && object.Status.Allocation != nil:
		return obstacle{text: "the API server has it, with its allocation", isFinal: true}
	case known == nil:
		return obstacle{text: "the kubelet can't be asked for it"}
	case known(claim):
		return obstacle{text: "the kubelet lists it"}
	}
	return obstacle{}
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
		return c.PodState(uid) == holds.PodEnded
	})
}

// heldError says which claims hold a device that another claim needs. A call that meets it waits,
// unless it is final.
type heldError struct {
	device  string
	holders []*prepared
	reasons []string // by holder, for the text of the error
	isFinal bool
}

// add adds why a holder has not ended.
func (e *heldError) add(holder *prepared, reason obstacle) {
	e.reasons = append(e.reasons, fmt.Sprintf("claim %s (%s)", fullName(holder.Claim), reason.text))
	e.isFinal = e.isFinal || reason.isFinal
}

func (e *heldError) Error() string {
	return fmt.Sprintf("device %q: held by %s", e.device, strings.Join(e.reasons, ", "))
}

// clear removes a claim among the holders of a device that has ended. It returns nil after it removed
// one: the caller then checks all conflicts again. If there is none, the error says why.
func (c *claims) clear(ctx context.Context, held *heldError) error {
	order.Sort(held.holders, func(a, b *prepared) int {
		return cmp.Compare(fullName(a.Claim), fullName(b.Claim))
	})
	// One answer serves all holders. It is nil if the kubelet does not answer.
	known, _ := c.Known(ctx)
	for _, holder := range held.holders {
		reason := c.obstacle(ctx, holder, known)
		if reason.none() {
			return c.end(holder)
		}
		held.add(holder, reason)
	}
	return held
}

// end removes a claim that has ended without NodeUnprepareResources. The sources were asked without
// c.mu: a call that prepared the claim meanwhile made another one.
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
	c.Log.Info("claim has ended without a call of the kubelet: its CDI spec is removed",
		"claim", fullName(own.Claim),
		"uid", own.UID,
	)
	return nil
}

// sweep is Plugin.Sweep. A file or a cgroup that does not answer delays it, and no other sweep begins
// meanwhile, but not its caller.
func (c *claims) sweep(ctx context.Context, known func(cdi.Claim) bool) bool {
	swept, _, _ := c.sweeping.Do(ctx, struct{}{}, c.timing.sweep, func() bool {
		ctx, cancel := context.WithTimeout(ctx, c.timing.sweep)
		defer cancel()
		return c.sweepAll(ctx, known)
	})
	return swept
}

// sweepAll is sweep without its time limit.
func (c *claims) sweepAll(ctx context.Context, known func(cdi.Claim) bool) bool {
	swept := false
	for _, own := range c.all() {
		// A listed claim needs no request to the API server.
		if known(own.Claim) || !c.obstacle(ctx, own, known).none() {
			continue
		}
		if c.end(own) == nil {
			swept = true
		}
	}
	return swept
}
