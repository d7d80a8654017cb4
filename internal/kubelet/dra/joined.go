package dra

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// joinInterval is the minimum time between two readings of the reservations of claims: many pods
// may start at once.
const joinInterval = time.Second

// NewPods says that the host may have new pods. It does not block.
//
// A pod that joins a prepared claim is not announced otherwise: the kubelet prepares a claim for
// the first pod only (prepareResources in pkg/kubelet/cm/dra/manager.go). The scheduler has
// reserved the claim for the pod before it binds the pod to the node, so the API server knows the
// pod when its first cgroup appears. After kubectl delete --force nobody knows it any more.
func (p *Plugin) NewPods() {
	select {
	case p.newPods <- struct{}{}:
	default: // one value is pending
	}
}

// followPods adds the pods that join prepared claims to the claims, until ctx is cancelled.
func (p *Plugin) followPods(ctx context.Context) {
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.newPods:
		}
		// An error, such as an unreachable API server, is retried until every claim was read.
		delay := p.timing.retry
		for p.addJoined(ctx) != nil && ctx.Err() == nil {
			wait(delay)
			delay = min(2*delay, p.timing.maxRetry)
		}
		// Pods that appear in this time are in the next reading.
		wait(joinInterval)
	}
}

// addJoined adds the pods that have joined prepared claims. After an error, some claims could not
// be read.
func (p *Plugin) addJoined(ctx context.Context) error {
	all := p.records.all()
	var errs []error
	for _, h := range all {
		if err := p.addPods(ctx, h); err != nil {
			errs = append(errs, fmt.Errorf("claim %s: %w", fullName(h.claim), err))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		p.Log.Debug("pods that join claims are not known yet", "err", err)
	}
	return err
}

// addPods adds the pods that have joined a claim. It forgets the pods that have ended and that no
// longer have a reservation.
func (p *Plugin) addPods(ctx context.Context, h holder) (err error) {
	defer p.recover("pods of a claim", &err)
	before := p.records.view(h.record)
	if before.isOwned || before.released {
		return nil // no pod joins it
	}
	// This request is made without the lock of the claim, so the record is compared again below.
	object, err := p.get(ctx, h.claim.Namespace, h.claim.Name)
	isGone := kubeapi.Code(err) == http.StatusNotFound
	// No pod can join a claim that does not exist any more.
	if isGone || err == nil && object.Metadata.UID != h.claim.UID {
		return nil
	}
	if err != nil {
		return err
	}
	// It never needs to be read again.
	if object.isOwnedBy(h.claim.Pods) {
		p.records.mark(h.record, func(r *record) {
			r.isOwned = true
		})
		return nil
	}
	leave, err := p.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	unlock, err := p.locks.lock(ctx, h.claim.UID)
	if err != nil {
		return err
	}
	defer unlock()
	now, isPrepared := p.records.get(h.claim.UID)
	if !isPrepared {
		return nil
	}
	// followPods reads it again after a delay.
	if now.record != h.record {
		return errChanged
	}
	pods := merged(object.pods(), p.notEnded(now.claim.Pods))
	// Without any pod, the last ones stay: they show that the claim has ended. The state of a claim
	// without pods is unknown.
	if len(pods) == 0 || slices.Equal(pods, now.claim.Pods) {
		return nil
	}
	return p.records.rewrite(now, pods)
}

// isOwnedBy reports whether the claim was made for one of these pods, from a template or for its
// extended resources. Then only that pod uses it.
func (o *resourceClaim) isOwnedBy(pods []string) bool {
	return slices.ContainsFunc(o.Metadata.OwnerReferences, func(owner ownerReference) bool {
		isPod := owner.Kind == "Pod" && owner.APIVersion == "v1"
		return isPod && owner.Controller && slices.Contains(pods, owner.UID)
	})
}
