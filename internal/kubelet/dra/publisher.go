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

// publisher makes the slices of the node equal to the devices, and keeps them equal if others change
// them. All nodes may start, or lose the API server, at the same time, so that it spreads its requests.
type publisher struct {
	*Plugin
	slices *nodeSlices
	// writes limits writes, and lists that changes by others cause.
	writes bucket
	// outdated is closed when there are other devices than the written ones. It is nil before the
	// first write.
	outdated <-chan struct{}
}

func newPublisher(p *Plugin) *publisher {
	return &publisher{
		Plugin: p,
		slices: newNodeSlices(p.API, p.Node),
		writes: bucket{timing: &p.timing},
	}
}

// errEdited ends a session after others have changed slices.
var errEdited = errors.New("others have changed slices of the node")

// run publishes until ctx is cancelled: one session after the other.
//
// Nothing is written before the kubelet has accepted the driver. The scheduler would bind a pod
// at once, and its first prepare would fail: the kubelet does not know the driver, and tries
// again after a minute. Slices of an earlier instance stay meanwhile.
func (p *publisher) run(ctx context.Context) {
	delay := rand.N(p.timing.jitter)
	var hurry <-chan struct{} // ends the delay
	var failed time.Duration  // the delay of the last of consecutive failures
	for {
		wasHurried := pause(ctx, delay, hurry)
		// An edit of the configuration reaches all nodes.
		if wasHurried {
			pause(ctx, rand.N(p.timing.jitter), nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.registered:
		}
		synced, err := p.session(ctx)
		if ctx.Err() != nil {
			return
		}
		isFirst := failed == 0 || synced
		if synced {
			failed = 0
		}
		hurry = nil
		watchEnded := err == nil || kubeapi.Code(err) == http.StatusGone
		switch {
		case errors.Is(err, errEdited):
			delay = p.writes.wait(time.Now())
			p.writes.spend(time.Now())
		case synced && watchEnded:
			// The server ends a watch after some half an hour, or if it is too far behind. A server
			// that shuts down ends the watches of all nodes at once. The slices are as they should
			// be, so that only a change of devices has to be quick.
			delay = rand.N(p.timing.calm)
			hurry = p.outdated
		case err == nil:
			delay = rand.N(p.timing.jitter)
		default:
			failed = p.timing.backoff(failed)
			delay = spread(failed)
			if isFirst {
				p.Log.Warn("publishing devices failed, trying again", "err", err)
			}
			p.update(func(now *state) {
				now.unpublished = problem(err)
			})
		}
	}
}

// pause waits for a delay. It returns earlier if ctx is cancelled, or if hurry is closed, which it
// reports.
func pause(ctx context.Context, delay time.Duration, hurry <-chan struct{}) (wasHurried bool) {
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	case <-hurry:
		return true
	}
	return false
}

// backoff returns the delay after another failure. last is the delay before, 0 if there is none.
func (t *timing) backoff(last time.Duration) time.Duration {
	return min(max(2*last, t.retry), t.maxRetry)
}

// spread returns between half and one and a half of a delay, so that nodes do not retry together.
func spread(delay time.Duration) time.Duration { return delay/2 + rand.N(delay) }

// session lists the slices of the node, writes the slices that differ, and does so after each change of
// the devices. It ends when the watch ends, when a request fails, or when others change slices: the next
// session lists them again. synced means that everything was written once during the watch, even if an
// error follows.
func (p *publisher) session(ctx context.Context) (synced bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	version, err := p.slices.list(ctx)
	if err != nil {
		return false, err
	}
	changes := make(chan sliceEvent)
	ended := make(chan error, 1)
	watch.Go(func() {
		ended <- p.slices.watch(ctx, version, changes)
	})
	hasBegun := false // the watch
	hasWritten := false
	isDirty := true
	var next time.Time // when slices change although the devices do not; zero if they do not
	for {
		if isDirty && p.writes.wait(time.Now()) <= 0 {
			next, err = p.write(ctx)
			switch {
			case errors.Is(err, errRefused):
				continue // with the rest
			// A server with too much to do puts the write off. The watch goes on: another session
			// would cost it three more requests.
			case kubeapi.Code(err) == http.StatusTooManyRequests:
				p.writes.putOff(time.Now())
			case err != nil:
				return synced, err
			default:
				isDirty = false
				hasWritten = true
			}
		}
		if hasBegun && hasWritten {
			synced = true
			p.update(func(now *state) {
				now.unpublished = ""
			})
		}
		// A channel that stays nil never fires.
		var due <-chan time.Time
		var changed <-chan struct{}
		if isDirty {
			due = time.After(p.writes.wait(time.Now()))
		} else {
			changed = p.outdated
			if !next.IsZero() {
				due = time.After(time.Until(next))
			}
		}
		select {
		case <-ctx.Done():
			return synced, nil
		case err := <-ended:
			return synced, err
		case c := <-changes:
			hasBegun = true
			if p.slices.foreign(c) {
				return synced, errEdited
			}
		case <-changed:
			isDirty = true
		case <-due:
			isDirty = true
		}
	}
}

// write writes the slices that differ. It returns when the slices change without other devices.
func (p *publisher) write(ctx context.Context) (next time.Time, err error) {
	devices, outdated := p.Devices.Get()
	// The list is not known yet. Slices of an earlier instance stay.
	if devices == nil {
		p.outdated = outdated
		return next, nil
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
		p.writes.spend(time.Now())
		p.Log.Debug("published", "devices", len(accepted), "slices", wrote, "generation", p.slices.generation)
	}
	if err == nil {
		p.outdated = outdated
		p.update(func(now *state) {
			now.refused = refused
		})
	}
	return next, err
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

// bucket limits requests: burst at once, then one per refill.
type bucket struct {
	*timing
	full time.Time     // when it will be full again
	busy time.Duration // the last delay of consecutive requests that the server put off
}

// wait is the time until the next request, at most 0 if that is now.
func (b *bucket) wait(now time.Time) time.Duration {
	return max(b.full.Sub(now), 0) - time.Duration(b.burst-1)*b.refill
}

// spend records a request.
func (b *bucket) spend(now time.Time) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.refill)
	b.busy = 0
}

// putOff records that the server put a request off. The next one waits longer each time.
func (b *bucket) putOff(now time.Time) {
	b.busy = b.backoff(b.busy)
	b.full = now.Add(spread(b.busy) + time.Duration(b.burst-1)*b.refill)
}
