package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// PodState says whether processes of a pod run.
type PodState int

const (
	// PodUnknown means that no source can tell.
	PodUnknown PodState = iota
	PodRunning
	PodEnded
)

// errStillAllocated means that the API server allocates a device to another claim as well.
var errStillAllocated = errors.New("the API server has it, with its allocation")

// unended returns why a prepared claim may still have containers, nil if it has ended. It is the
// only rule that removes a claim without NodeUnprepareResources, and every condition must hold:
//
//   - No process of its pods runs. The kubelet is no source for that. It forgets a pod that was
//     deleted with --force while the containers are in their grace period or hang in teardown:
//     the List of PodResources has the pods of the pod manager (pkg/kubelet/apis/podresources,
//     server_v1.go), as has the Pods API of 1.37 (pkg/kubelet/apis/pods, server.go). It even
//     unprepares the claims of such a pod within a minute (reconcileLoop in
//     pkg/kubelet/cm/dra/manager.go), so this condition also applies after the release.
//   - The kubelet, asked directly, does not list the claim.
//   - The API server does not have the claim or its allocation: else the kubelet may be about to
//     start the pod.
//   - The kubelet is not between the answer to a prepare and the first process of the pod.
func (p *Plugin) unended(ctx context.Context, h holder, known func(cdi.Claim) bool) error {
	state, pod := p.podsState(h.claim)
	if state == PodRunning {
		p.records.mark(h.record, func(r *record) { r.ran = true })
		return fmt.Errorf("processes of its pod %s still run", pod)
	}
	now := p.records.view(h.record)
	if now.released {
		return nil
	}
	object, err := p.get(ctx, h.claim.Namespace, h.claim.Name)
	missing := kubeapi.Code(err) == http.StatusNotFound
	if err != nil && !missing {
		return err
	}
	same := err == nil && object.Metadata.UID == h.claim.UID
	if same && object.Status.Allocation != nil {
		return errStillAllocated
	}
	if known == nil {
		return errors.New("the kubelet can't be asked for it")
	}
	if known(h.claim) {
		return errors.New("the kubelet lists it")
	}
	if state == PodUnknown {
		return errors.New("no source tells whether its containers have ended: see --cgroup, " +
			"or remove " + p.Claims.ClaimPath(h.claim.UID) + " when they have")
	}
	if starting := p.timing.start - time.Since(now.written); starting > 0 && !now.ran {
		return fmt.Errorf("it was prepared a moment ago, and its pod may start within %s", starting.Round(time.Second))
	}
	return nil
}

// podsState is PodRunning if one of the claim's pods runs, with the UID of that pod, and
// PodEnded if none of them does.
func (p *Plugin) podsState(claim cdi.Claim) (state PodState, pod string) {
	if p.PodState == nil || len(claim.Pods) == 0 {
		return PodUnknown, ""
	}
	state = PodEnded
	for _, uid := range claim.Pods {
		switch p.PodState(uid) {
		case PodRunning:
			return PodRunning, uid
		case PodUnknown:
			state = PodUnknown
		}
	}
	return state, ""
}

// heldError says which claims hold a device that another claim needs.
type heldError struct {
	device  string
	holders []holder
	reasons []error // by holder
}

func (e *heldError) Error() string {
	text := fmt.Sprintf("device %q: held by ", e.device)
	for i, h := range e.holders {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("claim %s/%s (%v)", h.claim.Namespace, h.claim.Name, e.reasons[i])
	}
	return text
}

// final reports whether waiting is of no use: the API server allocated the device twice.
func (e *heldError) final() bool {
	return slices.ContainsFunc(e.reasons, func(err error) bool { return errors.Is(err, errStillAllocated) })
}

// clear removes the claims among the holders that have ended. The error says who holds the
// devices otherwise, nil if one was removed.
func (p *Plugin) clear(ctx context.Context, conflicts map[string][]holder) error {
	var known func(cdi.Claim) bool
	if p.Known != nil {
		answer, err := p.Known(ctx)
		if err == nil {
			known = answer
		}
	}
	var found *heldError
	for device, holders := range conflicts {
		slices.SortFunc(holders, func(a, b holder) int {
			return cmp.Or(cmp.Compare(a.claim.Namespace, b.claim.Namespace), cmp.Compare(a.claim.Name, b.claim.Name))
		})
		held := &heldError{device: device}
		for _, h := range holders {
			reason := p.unended(ctx, h, known)
			if reason == nil {
				return p.end(ctx, h)
			}
			held.holders = append(held.holders, h)
			held.reasons = append(held.reasons, reason)
		}
		if found == nil || held.device < found.device {
			found = held
		}
	}
	return found
}

// end removes a claim that has ended without NodeUnprepareResources.
func (p *Plugin) end(ctx context.Context, h holder) error {
	p.Log.Info("claim has ended without a call of the kubelet: its CDI spec is removed", "claim", h.claim.Namespace+"/"+h.claim.Name, "uid", h.claim.UID)
	unlock, err := p.locks.lock(ctx, h.claim.UID)
	if err != nil {
		return err
	}
	defer unlock()
	return p.release(h.claim.UID)
}

// Sweep removes the claims that have ended without NodeUnprepareResources: a kubelet that lost
// its own state does not release them. known reports whether the kubelet lists a claim. Sweep
// reports whether it removed one.
func (p *Plugin) Sweep(ctx context.Context, known func(cdi.Claim) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, p.timing.sweep)
	defer cancel()
	all, _ := p.records.all(time.Now()) // claims that can't be read stay
	swept := false
	for _, h := range all {
		if known(h.claim) || p.unended(ctx, h, known) != nil {
			continue
		}
		if p.end(ctx, h) == nil {
			swept = true
		}
	}
	return swept
}
