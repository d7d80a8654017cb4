package dra

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// Publish publishes the devices until ctx is cancelled, which is no error: as the
// ResourceSlices of the node, which stay, and in the metadata of prepared claims.
// Only one instance on a node may.
func (p *Plugin) Publish(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		p.describe(ctx)
	})
	var (
		budget = bucket{timing: &p.timing}
		lists  = bucket{timing: &p.timing}
		delay  = rand.N(p.timing.jitter) // spreads the requests of all nodes, which may start at once
		hurry  <-chan struct{}           // ends the delay
		failed time.Duration             // the delay of the last of consecutive failures
		logged bool
	)
	for {
		if !p.pause(ctx, delay, hurry) {
			return nil
		}
		hurry = nil
		synced, err := p.session(ctx, &budget, &lists)
		if ctx.Err() != nil {
			return nil
		}
		if synced {
			failed = 0
			logged = false
		}
		// The server ends a watch after some half an hour, or if it is too far behind. A server that
		// shuts down ends the watches of all nodes at once. The slices are as they should be, so
		// that only a change of devices has to be quick.
		watchEnded := err == nil || kubeapi.Code(err) == http.StatusGone
		isRight := synced && len(p.slices.refused) == 0 // another server may accept the refused ones
		if isRight && watchEnded {
			delay = rand.N(p.timing.calm)
			hurry = p.slices.outdated
			continue
		}
		if err == nil || synced && watchEnded {
			delay = rand.N(p.timing.jitter)
			continue
		}
		failed = p.timing.backoff(failed)
		delay = spread(failed)
		if !logged {
			p.Log.Warn("publishing devices failed, trying again", "err", err)
			logged = true
		}
		p.update(func(now *state) {
			now.unpublished = problem(err)
		})
	}
}

// pause waits for a delay, or until hurry is closed and a short delay is over. It returns false if ctx
// is cancelled first.
func (p *Plugin) pause(ctx context.Context, delay time.Duration, hurry <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(delay):
		return true
	case <-hurry:
	}
	// An edit of the configuration reaches all nodes.
	return p.pause(ctx, rand.N(p.timing.jitter), nil)
}

// backoff returns the delay after another failure. last is the delay before, 0 if there is none.
func (t *timing) backoff(last time.Duration) time.Duration {
	return min(max(2*last, t.retry), t.maxRetry)
}

// spread returns between half and one and a half of a delay, so that nodes do not retry together.
func spread(delay time.Duration) time.Duration { return delay/2 + rand.N(delay) }

// session lists the slices of the node, writes the slices that differ, and follows changes by
// others, until the watch ends or a request fails. The next session lists them again. lists limits
// the lists that changes by others cause. synced means that everything was written once during the
// watch, even if an error follows.
//
// Nothing is written before the kubelet has accepted the driver. The scheduler would bind a pod
// at once, and its first prepare would fail: the kubelet does not know the driver, and tries
// again after a minute. Slices of an earlier instance stay meanwhile.
func (p *Plugin) session(ctx context.Context, budget, lists *bucket) (synced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	version, err := p.slices.list(ctx)
	if err != nil {
		return false, err
	}
	p.slices.refused = map[sum]string{} // the server may be of another version now
	var (
		changes = make(chan sliceEvent)
		ended   = make(chan error, 1)
		began   bool // the watch

		written bool
		changed <-chan struct{} // closed when there are other devices than the written ones
		next    time.Time       // of the next write, if there is one

		busy      time.Duration // the delay of the last of consecutive writes that the server put off
		notBefore time.Time     // of the next write

		edited bool // others changed slices since the last list
	)
	watch.Go(func() {
		ended <- p.slices.watch(ctx, version, changes)
	})
	registered := p.registered // nil once that is known
	for dirty := true; ; {
		listIn := lists.wait(time.Now())
		if edited && listIn <= 0 {
			lists.spend(time.Now())
			if _, err := p.slices.list(ctx); err != nil {
				return synced, err
			}
			edited = false
			dirty = true
		}
		mayWrite := dirty && closed(p.registered)
		wait := max(budget.wait(time.Now()), time.Until(notBefore))
		if mayWrite && wait > 0 {
			next = time.Now().Add(wait)
		} else if mayWrite {
			changed, next, err = p.write(ctx, budget)
			// The next round writes the slice without the refused devices.
			if errors.Is(err, errRefused) {
				continue // with the rest
			}
			if err != nil && kubeapi.Code(err) != http.StatusTooManyRequests {
				return synced, err
			}
			// A server with too much to do puts the write off. The watch goes on: another session
			// would cost it three more requests.
			if err != nil {
				busy = p.timing.backoff(busy)
				notBefore = time.Now().Add(spread(busy))
				next = notBefore
			} else {
				busy = 0
				dirty = false
				written = true
				p.slices.outdated = changed
			}
		}
		if synced = began && written; synced {
			p.update(func(now *state) {
				now.unpublished = ""
			})
		}
		// A channel that stays nil never fires.
		var due, listDue <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		if edited {
			listDue = time.After(listIn)
		}
		select {
		case <-ctx.Done():
			return synced, nil
		case <-listDue:
		case err := <-ended:
			return synced, err
		case c := <-changes:
			began = true
			edited = edited || p.slices.foreign(c)
		case <-changed:
			// The channel is closed and would fire again. The next write returns another one.
			changed = nil
			dirty = true
		case <-due:
			dirty = true
		case <-registered:
			registered = nil
			dirty = true
		}
	}
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// write writes the slices that differ. It returns a channel that is closed when there are other
// devices, and when the slices change without other devices.
func (p *Plugin) write(ctx context.Context, budget *bucket) (changed <-chan struct{}, next time.Time, err error) {
	devices, changed := p.Devices.Get()
	// The list is not known yet. Slices of an earlier instance stay.
	if devices == nil {
		return changed, next, nil
	}
	typed := slices.DeleteFunc(sorted(devices), func(d Device) bool {
		return d.Mistyped
	})
	sets, left := addCounters(typed)
	accepted, refused := p.slices.accepted(typed, left, time.Now())
	specs, next := p.slices.specs(accepted, sets, time.Now())
	wrote, err := p.slices.write(ctx, specs, p.Wrote)
	// A refused write costs the API server as much as another one.
	if wrote > 0 || errors.Is(err, errRefused) {
		budget.spend(time.Now())
		p.Log.Debug("published", "devices", len(accepted), "slices", wrote, "generation", p.slices.generation)
	}
	if err == nil {
		p.update(func(now *state) {
			now.refused = refused
		})
	}
	return changed, next, err
}

// problem says what an administrator must change because of err. It is empty if there is nothing to
// change, for example while the API server is unreachable.
func problem(err error) string {
	var untrusted *tls.CertificateVerificationError
	switch code := kubeapi.Code(err); {
	case errors.Is(err, fs.ErrNotExist):
		return "no service account token: set dra.enabled in the chart, or apply deploy/dra: " + err.Error()
	case errors.As(err, &untrusted):
		return "the certificate of the API server is not one of the cluster's CA, or has expired: " + err.Error()
	case code == http.StatusUnauthorized:
		return "the API server does not accept the token of the service account: " + err.Error()
	// An admission policy that has no exception for this service account.
	case code == http.StatusForbidden || code == http.StatusUnprocessableEntity && strings.Contains(err.Error(), " denied "):
		return "the service account has no right: set dra.enabled in the chart, or apply deploy/dra: " + err.Error()
	case code == http.StatusNotFound && strings.Contains(err.Error(), nodesPath):
		return "the API server does not know this node, see --node-name: " + err.Error()
	case code == http.StatusNotFound:
		return `the API server has no resource.k8s.io/v1: use Kubernetes 1.34 or later, or api = "device-plugin": ` + err.Error()
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		return err.Error()
	}
	return ""
}

// bucket limits writes: burst at once, then one per refill.
type bucket struct {
	*timing
	full time.Time // when it will be full again
}

// wait is the time until the next write, at most 0 if that is now.
func (b *bucket) wait(now time.Time) time.Duration {
	return max(b.full.Sub(now), 0) - time.Duration(b.burst-1)*b.refill
}

// spend records a write.
func (b *bucket) spend(now time.Time) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.refill)
}
