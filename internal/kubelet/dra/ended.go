package dra

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
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
func (p *Plugin) obstacle(ctx context.Context, h holder, known func(cdi.Claim) bool) obstacle {
	e, pod := p.evidence(h)
	if e.Hold() == holds.HeldByRecord {
		recorded := p.recordOf(ctx, h.claim, known)
		if !recorded.none() {
			return recorded
		}
		e.IsAbsent = true
	}
	return p.textOf(e.Hold(), h, pod)
}

// evidence is what this node knows about a claim, and the UID of a pod of it that runs. It records the state
// of the pods. It reads cgroups, and does not wait for another process.
func (p *Plugin) evidence(h holder) (e holds.ClaimEvidence, pod string) {
	e.Pods, pod = p.podsState(h.claim)
	p.records.mark(h.record, func(r *record) {
		switch e.Pods {
		case holds.PodRunning:
			r.ran = true
			r.runs = true
		case holds.PodEnded:
			r.runs = false
		}
	})
	now := p.records.view(h.record)
	e.HaveRun = now.runs
	e.IsReleased = now.released
	// Once a process of the pod was seen, only the end of the pod counts.
	e.MayStart = !now.ran && time.Since(now.written) < p.timing.start
	return e, pod
}

// textOf returns the text of a reason, except HeldByRecord, see recordOf. pod is the UID of the pod that runs.
func (p *Plugin) textOf(hold holds.ClaimHold, h holder, pod string) obstacle {
	switch hold {
	case holds.NotHeld:
		return obstacle{}
	case holds.HeldByPod:
		return obstacle{text: fmt.Sprintf("processes of its pod %s still run", pod)}
	case holds.HeldByLostPod:
		return obstacle{text: "processes of its pods ran when it was last seen, and no source knows whether they have ended: see --cgroup"}
	case holds.HeldByUnseenPod:
		path := p.Claims.ClaimPath(h.claim.UID)
		return obstacle{text: fmt.Sprintf("no source tells whether its containers have ended: see --cgroup, or remove %s when they have", path)}
	}
	left := p.timing.start - time.Since(p.records.view(h.record).written)
	return obstacle{text: fmt.Sprintf("it was prepared a moment ago, and its pod may start within %s", left.Round(time.Second))}
}

// recordOf returns whether the API server has a claim with its allocation, or the kubelet lists it: then the
// kubelet may be about to start a pod. It makes one request.
func (p *Plugin) recordOf(ctx context.Context, claim cdi.Claim, known func(cdi.Claim) bool) obstacle {
	object, err := p.get(ctx, claim.Namespace, claim.Name)
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
func (p *Plugin) podsState(claim cdi.Claim) (state holds.PodState, pod string) {
	if p.PodState == nil || len(claim.Pods) == 0 {
		return holds.PodUnknown, ""
	}
	state = holds.PodEnded
	for _, uid := range claim.Pods {
		switch p.PodState(uid) {
		case holds.PodRunning:
			return holds.PodRunning, uid
		case holds.PodUnknown:
			state = holds.PodUnknown
		}
	}
	return state, ""
}

// notEnded returns the pods that are not known to have ended. It does not change pods, and returns
// it as it is if no source knows any state.
func (p *Plugin) notEnded(pods []string) []string {
	if p.PodState == nil {
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(uid string) bool {
		return p.PodState(uid) == holds.PodEnded
	})
}

// heldError says which claims hold a device that another claim needs. A call that meets it waits,
// unless final reports true.
type heldError struct {
	device  string
	holders []holder
	reasons []obstacle // by holder
}

func (e *heldError) Error() string {
	text := fmt.Sprintf("device %q: held by ", e.device)
	for i, h := range e.holders {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("claim %s (%s)", fullName(h.claim), e.reasons[i].text)
	}
	return text
}

// final reports whether waiting is of no use: the API server allocated the device twice.
func (e *heldError) final() bool {
	return slices.ContainsFunc(e.reasons, func(r obstacle) bool {
		return r.isFinal
	})
}

// clear removes a claim among the holders that has ended. If there is none, the error names the
// claims that hold the devices. It returns nil after it removed one claim: the caller then checks
// all conflicts again.
func (p *Plugin) clear(ctx context.Context, conflicts map[string][]holder) error {
	// One answer serves all holders. The requests to the API server are for one claim each.
	known := p.askKubelet(ctx)
	var first *heldError // by the name of the device, so that the message is stable
	for device, holders := range conflicts {
		order.Sort(holders, func(a, b holder) int {
			return cmp.Compare(fullName(a.claim), fullName(b.claim))
		})
		held := &heldError{device: device}
		for _, h := range holders {
			reason := p.obstacle(ctx, h, known)
			if reason.none() {
				return p.end(ctx, h)
			}
			held.holders = append(held.holders, h)
			held.reasons = append(held.reasons, reason)
		}
		if first == nil || held.device < first.device {
			first = held
		}
	}
	return first
}

// askKubelet returns a function that reports whether the kubelet lists a claim, nil if the kubelet
// does not answer.
func (p *Plugin) askKubelet(ctx context.Context) func(cdi.Claim) bool {
	if p.Known == nil {
		return nil
	}
	known, err := p.Known(ctx)
	if err != nil {
		return nil
	}
	return known
}

// end removes a claim that has ended without NodeUnprepareResources. The sources were asked
// without the lock of the claim: a call that prepared it meanwhile made another record. It waits
// for the lock of the claim until ctx ends.
func (p *Plugin) end(ctx context.Context, h holder) error {
	unlock, err := p.locks.lock(ctx, h.claim.UID)
	if err != nil {
		return err
	}
	defer unlock()
	now, prepared := p.records.get(h.claim.UID)
	if !prepared {
		return nil // another call removed it
	}
	if now.record != h.record {
		return fmt.Errorf("claim %s was prepared again: %w", fullName(h.claim), errChanged)
	}
	if err := p.release(h.claim.UID); err != nil {
		return err
	}
	p.Log.Info("claim has ended without a call of the kubelet: its CDI spec is removed",
		"claim", fullName(h.claim),
		"uid", h.claim.UID,
	)
	return nil
}

// Sweep removes the claims that have ended without NodeUnprepareResources: a kubelet that lost
// its own state does not release them. known reports whether the kubelet lists a claim. Sweep
// reports whether it removed one. It takes at most ten seconds, and may run beside calls of the
// kubelet.
func (p *Plugin) Sweep(ctx context.Context, known func(cdi.Claim) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, p.timing.sweep)
	defer cancel()
	all := p.records.all()
	swept := false
	for _, h := range all {
		// A listed claim needs no request to the API server.
		if known(h.claim) || !p.obstacle(ctx, h, known).none() {
			continue
		}
		if p.end(ctx, h) == nil {
			swept = true
		}
	}
	return swept
}
