package dra

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// reporter writes the state of devices into the status of the prepared claims that have them. It
// keeps nothing across restarts: the claims say what was written.
//
// A claim is read before it is written, so that a write that changes nothing is left out, and the
// write fails if the claim has changed since. Entries of other drivers belong to other managers of
// server-side apply and stay.
type reporter struct {
	*Plugin
	due chan struct{} // see wake; it has capacity 1
	// isRefused is set while the API server does not accept any status. Requests would be useless.
	isRefused atomic.Bool

	// The other fields belong to the goroutine of run.

	budget bucket
	// done has the claims that need no write, by UID.
	done map[string]reportedClaim
	// logged is the last refusal in the log, empty after a success.
	logged string
}

// reportedClaim is a claim whose status is up to date.
type reportedClaim struct {
	// record is another one after the next preparation. The claim may have had another allocation
	// meanwhile, with which the API server removes the status.
	record *record
	state  map[string]readiness // by name of the device
}

// errNoStatus means that the API server accepts no status of devices.
var errNoStatus = errors.New("the API server drops status.devices: its feature gate DRAResourceClaimDeviceStatus is off")

func newReporter(p *Plugin) *reporter {
	return &reporter{
		Plugin: p,
		due:    make(chan struct{}, 1),
		budget: bucket{timing: &p.timing},
		done:   map[string]reportedClaim{},
	}
}

// wake says that claims may need another status. It does not block.
func (r *reporter) wake() {
	select {
	case r.due <- struct{}{}:
	default: // one value is pending
	}
}

// tryAgain ends the time in which the API server is known to accept no status. It is called with
// each list of the slices, after minutes to an hour: an administrator may have granted the right.
func (r *reporter) tryAgain() {
	if r.isRefused.Swap(false) {
		r.wake()
	}
}

// run writes the status of prepared claims after each change, until ctx is cancelled.
func (r *reporter) run(ctx context.Context) {
	// All nodes may start at once.
	wait := time.After(rand.N(r.timing.jitter))
	failed := time.Duration(0) // the delay of the last of consecutive failures
	for {
		// No event shortens this time.
		select {
		case <-ctx.Done():
			return
		case <-wait:
		}
		devices, changed := r.Devices.Get()
		next, err := r.report(ctx, devices)
		if err != nil {
			failed = min(max(2*failed, r.timing.retry), r.timing.maxRetry)
			wait = time.After(failed/2 + rand.N(failed))
			continue
		}
		failed = 0
		wait = time.After(next)
		if next > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.due:
		}
	}
}

// report writes the status of the claims that need it. It returns the time until the next write, 0 if
// nothing is left. After an error, some claims were not written.
func (r *reporter) report(ctx context.Context, devices []Device) (next time.Duration, err error) {
	// Before the first list nothing is known.
	if devices == nil || r.isRefused.Load() {
		return 0, nil
	}
	prepared, _ := r.records.all(time.Now()) // the agent reports claims that can't be read
	r.forget(prepared)
	if len(prepared) == 0 {
		return 0, nil
	}
	byID := map[string]*Device{}
	all := sorted(devices)
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	for _, h := range prepared {
		state := readinesses(h.claim, byID)
		done := r.done[h.claim.UID]
		if done.record == h.record && maps.Equal(done.state, state) {
			continue
		}
		if wait := r.budget.wait(time.Now()); wait > 0 {
			return wait, nil
		}
		err := r.reportClaim(ctx, h, state)
		if r.isRefusal(err) {
			return 0, nil
		}
		// Only another state, or another preparation, may change the answer.
		isInvalid := kubeapi.Code(err) == http.StatusUnprocessableEntity
		if isInvalid {
			r.logOnce("the status of a claim is refused", err.Error())
		} else if err != nil {
			r.Log.Debug("status of a claim not written", "claim", fullName(h.claim), "err", err)
			return 0, err
		}
		r.done[h.claim.UID] = reportedClaim{
			record: h.record,
			state:  state,
		}
	}
	return 0, nil
}

// forget drops the claims that are not prepared any more.
func (r *reporter) forget(prepared []holder) {
	isPrepared := make(map[string]bool, len(prepared))
	for _, h := range prepared {
		isPrepared[h.claim.UID] = true
	}
	for uid := range r.done {
		if !isPrepared[uid] {
			delete(r.done, uid)
		}
	}
}

// reportClaim writes the status of a claim unless the claim has it. It returns nil if there is nothing
// to repeat, because the claim does not exist any more or because it was refused.
func (r *reporter) reportClaim(ctx context.Context, h holder, state map[string]readiness) (err error) {
	defer r.recover("status of a claim", &err)
	object, err := r.get(ctx, h.claim.Namespace, h.claim.Name)
	if kubeapi.Code(err) == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	// Another claim may have the name now.
	if object.Metadata.UID != h.claim.UID {
		return nil
	}
	devices, isCurrent := object.status(r.Node, state, time.Now())
	if isCurrent {
		return nil
	}
	patch := claimPatch{
		APIVersion: "resource.k8s.io/v1",
		Kind:       "ResourceClaim",
		Metadata: metadata{
			Name:            h.claim.Name,
			Namespace:       h.claim.Namespace,
			ResourceVersion: object.Metadata.ResourceVersion,
		},
		Status: claimPatchBody{Devices: devices},
	}
	r.budget.spend(time.Now())
	var written resourceClaim
	err = r.API.Apply(ctx, claimPath(h.claim.Namespace, h.claim.Name)+"/status", Driver, patch, &written)
	if kubeapi.Code(err) == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if written.reported(devices[0]).ready() == nil {
		return errNoStatus
	}
	r.logged = ""
	return nil
}

// isRefusal reports whether err means that the API server accepts no status from this driver. It logs
// the reason once, and no other request follows until tryAgain.
func (r *reporter) isRefusal(err error) bool {
	code := kubeapi.Code(err)
	// The API server checks this right as a part of the validation (AuthorizedForDeviceStatus in
	// pkg/registry/resource/utils.go, since 1.36).
	lacksDriver := code == http.StatusUnprocessableEntity && strings.Contains(err.Error(), `"resourceclaims/driver"`)
	lacksRight := code == http.StatusForbidden || lacksDriver
	if !lacksRight && !errors.Is(err, errNoStatus) {
		return false
	}
	r.isRefused.Store(true)
	reason := err.Error()
	if lacksRight {
		reason = "the service account has no right: set dra.deviceStatus in the chart, or add the component deploy/kustomize/dra-status: " + reason
	}
	r.logOnce("claims do not show the state of their devices", reason)
	return true
}

// logOnce logs a reason unless it was logged since the last success.
func (r *reporter) logOnce(message, reason string) {
	if reason != r.logged {
		r.Log.Info(message, "reason", reason)
		r.logged = reason
	}
}
