package dra

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// joinInterval is the minimum time between two readings of the reservations of claims: many pods
// may start at once.
const joinInterval = time.Second

// followPods adds the pods that join prepared claims to the claims, until ctx is cancelled.
func (c *claims) followPods(ctx context.Context) {
	delay := joinInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.newPods:
		}
		if c.addJoined(ctx) == nil {
			delay = joinInterval
		} else {
			// Every claim is read again, such as when the API server is reachable again.
			delay = c.timing.backoff(delay)
			c.readPods()
		}
		// Pods that appear in this time are in the next reading.
		pause(ctx, delay, nil)
	}
}

// readPods makes followPods read all claims. It does not block.
func (c *claims) readPods() { watch.Signal(c.newPods) }

// addJoined adds the pods that have joined prepared claims. After an error, some claims could not
// be read.
func (c *claims) addJoined(ctx context.Context) error {
	var last error
	for _, own := range c.all() {
		if err := c.addPods(ctx, own); err != nil {
			last = fmt.Errorf("claim %s: %w", fullName(own.Claim), err)
			c.Log.Debug("pods that join a claim are not known yet", "err", last)
		}
	}
	return last
}

// addPods adds the pods that have joined a claim. It forgets the pods that have ended and that no
// longer have a reservation.
func (c *claims) addPods(ctx context.Context, own *prepared) (err error) {
	defer kubelet.Recovered(c.Log, "pods of a claim", &err)
	c.mu.Lock()
	nobodyJoins := own.IsOwned || own.released
	c.mu.Unlock()
	if nobodyJoins {
		return nil
	}
	// This request is made without c.mu, so the claim is compared again below.
	object, err := c.get(ctx, own.Namespace, own.Name)
	isGone := kubeapi.Code(err) == http.StatusNotFound
	// No pod can join a claim that does not exist any more.
	if isGone || err == nil && object.Metadata.UID != own.UID {
		return nil
	}
	if err != nil {
		return err
	}
	leave, err := c.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.byUID[own.UID]
	if now == nil || now.released {
		return nil
	}
	// followPods reads it again after a delay.
	if now != own {
		return errChanged
	}
	pods := merged(object.pods(), c.notEnded(own.Pods))
	// Without any pod, the last ones stay: they show that the claim has ended. The state of a claim
	// without pods is unknown.
	if len(pods) == 0 || slices.Equal(pods, own.Pods) {
		return nil
	}
	next := *own
	next.Pods = pods
	if err := c.Claims.WriteClaim(next.Claim); err != nil {
		return err
	}
	c.byUID[own.UID] = &next
	return nil
}

// isOwnedBy reports whether the claim was made for one of these pods, from a template or for its
// extended resources. Then only that pod uses it.
func (o *resourceClaim) isOwnedBy(pods []string) bool {
	return slices.ContainsFunc(o.Metadata.OwnerReferences, func(owner ownerReference) bool {
		isPod := owner.Kind == "Pod" && owner.APIVersion == "v1"
		return isPod && owner.Controller && slices.Contains(pods, owner.UID)
	})
}
