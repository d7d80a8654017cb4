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

// evidence is a source that says that a prepared claim may still have containers, or cannot
// rule it out.
type evidence int

const (
	// runningPod: processes of a pod of the claim exist.
	runningPod evidence = iota + 1
	// lostPod: processes of a pod existed, and no source knows any more whether they do.
	lostPod
	// unreachableServer: the API server does not answer.
	unreachableServer
	// allocation: the API server has the claim with its allocation.
	allocation
	// silentKubelet: the kubelet does not answer.
	silentKubelet
	// listedClaim: the kubelet lists the claim.
	listedClaim
	// noSource: no source knows the state of the claim's pods.
	noSource
	// recentPrepare: the kubelet may be about to start the pod.
	recentPrepare
)

// evidenceTexts are what an administrator reads about evidence. A verb takes the detail.
var evidenceTexts = map[evidence]string{
	runningPod:        "processes of its pod %s still run",
	lostPod:           "processes of its pods ran when it was last seen, and no source knows whether they have ended: see --cgroup",
	unreachableServer: "%s",
	allocation:        "the API server has it, with its allocation",
	silentKubelet:     "the kubelet can't be asked for it",
	listedClaim:       "the kubelet lists it",
	noSource:          "no source tells whether its containers have ended: see --cgroup, or remove %s when they have",
	recentPrepare:     "it was prepared a moment ago, and its pod may start within %s",
}

// obstacle is why a claim can't end. The zero value means that it has ended. detail fills the verb
// in the text of the evidence, and is empty if there is none.
type obstacle struct {
	evidence evidence
	detail   string
}

// none reports whether the claim has ended.
func (o obstacle) none() bool { return o.evidence == 0 }

func (o obstacle) String() string {
	text := evidenceTexts[o.evidence]
	if o.detail == "" {
		return text
	}
	return fmt.Sprintf(text, o.detail)
}

// obstacle returns why a prepared claim has not ended, see holds.ClaimEvidence. A claim that the kubelet
// has not released ends only if every condition holds:
//
//   - No process of its pods runs. The kubelet is no source for that. It forgets a pod that was
//     deleted with --force while the containers are in their grace period or hang in teardown:
//     the List of PodResources has the pods of the pod manager (pkg/kubelet/apis/podresources,
//     server_v1.go). It even unprepares the claims of such a pod within a minute (reconcileLoop in
//     pkg/kubelet/cm/dra/manager.go), so this condition also applies after the release.
//   - The kubelet, asked directly, does not list the claim.
//   - The API server does not have the claim or its allocation: else the kubelet may be about to
//     start the pod.
//   - The kubelet is not between the answer to a prepare and the first process of the pod.
func (p *Plugin) obstacle(ctx context.Context, h holder, known func(cdi.Claim) bool) obstacle {
	pods := p.podsObstacle(h)
	e := p.evidenceOf(h)
	if e.Ends() {
		return obstacle{}
	}
	if pods.evidence == runningPod || pods.evidence == lostPod {
		return pods
	}
	if server := p.serverObstacle(ctx, h.claim); !server.none() {
		return server
	}
	if known == nil {
		return obstacle{evidence: silentKubelet}
	}
	if known(h.claim) {
		return obstacle{evidence: listedClaim}
	}
	start := p.startObstacle(h)
	e.IsAbsent = true
	e.MayStart = !start.none()
	if e.Ends() {
		return obstacle{}
	}
	if !pods.none() {
		return pods
	}
	return start
}

// evidenceOf is what this node knows about a claim. podsObstacle precedes it.
func (p *Plugin) evidenceOf(h holder) holds.ClaimEvidence {
	state, _ := p.podsState(h.claim)
	now := p.records.view(h.record)
	return holds.ClaimEvidence{
		Pods:       state,
		HaveRun:    now.runs,
		IsReleased: now.released,
	}
}

// releasedEvidence is what is known about a claim that the kubelet releases now, or has released.
func (p *Plugin) releasedEvidence(h holder) holds.ClaimEvidence {
	_ = p.podsObstacle(h) // records the state of the pods
	e := p.evidenceOf(h)
	e.IsReleased = true
	return e
}

// startObstacle returns whether the kubelet may be about to start a pod of a claim. It does not
// apply once a process of the pod was seen: then only the end of the pod counts.
func (p *Plugin) startObstacle(h holder) obstacle {
	now := p.records.view(h.record)
	starting := p.timing.start - time.Since(now.written)
	if starting > 0 && !now.ran {
		return obstacle{evidence: recentPrepare, detail: starting.Round(time.Second).String()}
	}
	return obstacle{}
}

// podsObstacle returns whether processes of a claim's pods speak against its end. It records
// their state. It reads cgroups, and does not wait for another process.
func (p *Plugin) podsObstacle(h holder) obstacle {
	state, pod := p.podsState(h.claim)
	switch state {
	case holds.PodRunning:
		p.records.mark(h.record, func(r *record) {
			r.ran = true
			r.runs = true
		})
		return obstacle{evidence: runningPod, detail: pod}
	case holds.PodEnded:
		p.records.mark(h.record, func(r *record) {
			r.runs = false
		})
		return obstacle{}
	}
	// The cgroups may have become unreadable meanwhile.
	if p.records.view(h.record).runs {
		return obstacle{evidence: lostPod}
	}
	return obstacle{evidence: noSource, detail: p.Claims.ClaimPath(h.claim.UID)}
}

// serverObstacle returns whether the API server speaks against the end of a claim. It makes one
// request.
func (p *Plugin) serverObstacle(ctx context.Context, claim cdi.Claim) obstacle {
	object, err := p.get(ctx, claim.Namespace, claim.Name)
	if kubeapi.Code(err) == http.StatusNotFound {
		return obstacle{}
	}
	if err != nil {
		return obstacle{evidence: unreachableServer, detail: err.Error()}
	}
	// A later claim may have the same name.
	isSame := object.Metadata.UID == claim.UID
	if isSame && object.Status.Allocation != nil {
		return obstacle{evidence: allocation}
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
		text += fmt.Sprintf("claim %s (%s)", fullName(h.claim), e.reasons[i])
	}
	return text
}

// final reports whether waiting is of no use: the API server allocated the device twice.
func (e *heldError) final() bool {
	return slices.ContainsFunc(e.reasons, func(r obstacle) bool {
		return r.evidence == allocation
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
