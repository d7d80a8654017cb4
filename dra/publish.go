package dra

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubeapi"
)

// Options of a Publisher.
type Options struct {
	// API is the client of the API server.
	API *kubeapi.Client
	// Node is the name of the node.
	Node string
	// Devices to publish.
	Devices *List
	// Changed is called when Problem has changed; it must not block. May be nil.
	Changed func()
	// Wrote is called after each write of a slice; nil does nothing.
	Wrote func(err error)
	Log   *slog.Logger
}

// timing is what tests shorten.
type timing struct {
	// jitter is the maximum delay of a list: all nodes may start, or lose the API server,
	// at once.
	jitter time.Duration
	// retry and maxRetry bound the time between failed attempts.
	retry, maxRetry time.Duration
	// refill is the time between writes in a storm, which begins after burst writes: a
	// device that is plugged again is gone, settling and healthy within a second.
	refill time.Duration
	burst  int
}

// Publisher keeps the ResourceSlices of the node equal to its devices. Only one instance
// on a node may Run.
type Publisher struct {
	Options
	timing  timing
	node    *nodeSlices // of the goroutine of Run
	problem atomic.Pointer[string]
}

// NewPublisher makes a Publisher; Run runs it.
func NewPublisher(o Options) *Publisher {
	if o.Wrote == nil {
		o.Wrote = func(error) {}
	}
	p := &Publisher{
		Options: o,
		timing: timing{
			jitter: 3 * time.Second,
			retry:  time.Second, maxRetry: 30 * time.Second,
			refill: time.Second, burst: 4,
		},
		node: newNodeSlices(o.API, o.Node),
	}
	p.problem.Store(new(string))
	return p
}

// Problem is why the devices are not published and what to change, for an administrator.
// It is empty if there is nothing to change, as while the API server is away.
func (p *Publisher) Problem() string { return *p.problem.Load() }

func (p *Publisher) setProblem(text string) {
	if old := p.problem.Swap(&text); *old != text && p.Changed != nil {
		p.Changed()
	}
}

// Run publishes until ctx is cancelled, which is no error; slices stay.
func (p *Publisher) Run(ctx context.Context) error {
	var (
		budget = bucket{timing: &p.timing}
		delay  = rand.N(p.timing.jitter)
		failed time.Duration // the delay of the last of consecutive failures
		logged bool
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
		worked, err := p.session(ctx, &budget)
		if ctx.Err() != nil {
			return nil
		}
		if worked {
			failed, logged = 0, false
		}
		// The server ends a watch after some half an hour, or if it is too far behind.
		if err == nil || worked && kubeapi.Code(err) == http.StatusGone {
			delay = rand.N(p.timing.jitter)
			continue
		}
		failed = min(max(2*failed, p.timing.retry), p.timing.maxRetry)
		delay = failed/2 + rand.N(failed)
		if !logged {
			p.Log.Warn("publishing devices failed, trying again", "err", err)
			logged = true
		}
		p.setProblem(problem(err))
	}
}

// session lists the node's slices, then writes what differs and follows what others
// change, until the watch ends or a request fails. Whatever the failure, the next session
// begins with what the server has. It worked if everything was written and the watch began.
func (p *Publisher) session(ctx context.Context, budget *bucket) (worked bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	version, err := p.node.list(ctx)
	if err != nil {
		return false, err
	}
	var (
		events = make(chan object)
		ended  = make(chan error, 1)
		began  bool // the watch

		written bool
		changed <-chan struct{} // closed when there are other devices than the written ones
		next    time.Time       // of the next write, if there is one
	)
	watch.Go(func() { ended <- p.node.watch(ctx, version, events) })
	for dirty := true; ; {
		if wait := budget.wait(time.Now()); dirty && wait > 0 {
			next = time.Now().Add(wait)
		} else if dirty {
			if changed, next, err = p.write(ctx, budget); err != nil {
				return worked, err
			}
			dirty, written = false, true
		}
		if worked = began && written; worked {
			p.setProblem("")
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return worked, nil
		case err := <-ended:
			return worked, err
		case e := <-events:
			began = true
			if p.node.foreign(e) {
				if _, err := p.node.list(ctx); err != nil {
					return worked, err
				}
				dirty = true
			}
		case <-changed:
			changed, dirty = nil, true
		case <-due:
			dirty = true
		}
	}
}

// write writes what differs. It returns a channel that is closed when there are other
// devices, and when these change by themselves.
func (p *Publisher) write(ctx context.Context, budget *bucket) (changed <-chan struct{}, next time.Time, err error) {
	devices, changed := p.Devices.Get()
	if devices == nil {
		return changed, next, nil
	}
	specs, next := p.node.specs(sorted(devices), time.Now())
	wrote, err := p.node.write(ctx, specs, p.Wrote)
	if wrote > 0 {
		budget.spend(time.Now())
		p.Log.Debug("published", "devices", len(devices), "slices", wrote, "generation", p.node.generation)
	}
	return changed, next, err
}

// problem is what an administrator has to do about err; empty if it may pass by itself.
func problem(err error) string {
	var untrusted *tls.CertificateVerificationError
	switch code := kubeapi.Code(err); {
	case errors.Is(err, fs.ErrNotExist):
		return "no service account token: set dra.enabled in the chart, or add the component deploy/kustomize/dra: " + err.Error()
	case errors.As(err, &untrusted):
		return "the certificate of the API server is not one of the cluster's CA, or has expired: " + err.Error()
	case code == http.StatusUnauthorized:
		return "the API server does not accept the token of the service account: " + err.Error()
	// An admission policy that has no exception for this service account.
	case code == http.StatusForbidden || code == http.StatusUnprocessableEntity && strings.Contains(err.Error(), " denied "):
		return "the service account has no right: set dra.enabled in the chart, or add the component deploy/kustomize/dra: " + err.Error()
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

func (b *bucket) spend(now time.Time) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.refill)
}
