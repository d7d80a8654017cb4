// Package plugin is ONE resource before the kubelet: its gRPC server, its
// ListAndWatch streams, its registration and re-registration. What there is to
// list and to hand out comes from a Source; why devices are healthy or not is
// not known here.
//
// Serve first, then register, is the one way that is safe on every kubelet:
//
//   - Every registration has a socket with a fresh name. Kubelets since 1.37
//     tell plugin instances apart by socket path, and a second Register on a
//     connected path corrupts their state.
//   - No Register while an own ListAndWatch stream is alive. Kubelets up to 1.36
//     know a plugin by its resource name alone: when any older stream ends they
//     disconnect whatever registered last.
//   - A stream that ends is never opened again by the kubelet, so its end means
//     register anew, as do a new kubelet.sock and an own socket that is gone.
//   - When an instance that registered later goes, as in an update that is taken
//     back, kubelets up to 1.36 drop the resource and leave the older instance's
//     stream open: the end of the later socket means register anew, too.
//   - Only a socket whose inode is the own one is ever unlinked.
package plugin

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// Source says what the kubelet is shown and what a container gets. Its methods
// are called from several goroutines at once. One that panics fails the call it was
// made for, and nothing else; so does an Allocate that blocks.
type Source interface {
	// Devices returns the latest list, which nobody changes any more, and a
	// channel that is closed when a newer one is there.
	Devices() (list []device.Listed, changed <-chan struct{})
	// Allocate says what one container gets for the devices ids, which are sorted.
	// One that is not listed or not healthy is an error. It may be asked again for
	// the same ids: the containers of a pod share devices with its init containers.
	Allocate(ctx context.Context, ids []string) (device.Response, error)
	// Blocks reports whether Allocate may block for these devices, so that it needs
	// to be given up on.
	Blocks(ids []string) bool
	// Prefer chooses size of the available ids, those of must among them; none
	// leaves the choice to the kubelet.
	Prefer(available, must []string, size int) []string
}

// Hooks are told what happens, for metrics. A nil func is not called; the others
// are called from several goroutines and must not block.
type Hooks struct {
	// Registered: the kubelet accepted the resource and has its first list;
	// took counts from the connection to the kubelet.
	Registered func(cause Cause, took time.Duration)
	// Refused: an attempt to register failed.
	Refused func(err error)
	// Listed: a list of so many devices was sent.
	Listed func(devices int)
	// Allocated: an Allocate call was answered, with err where it failed.
	Allocated func(took time.Duration, err error)
}

// Options of a Plugin.
type Options struct {
	// Resource is the full name, "example.com/gpu".
	Resource string
	// Watch is shared by all plugins of the process and says which directory
	// the sockets are in. Whoever made it runs it.
	Watch *KubeletWatch
	// Source of the devices.
	Source Source
	// Log gets what happens; nil discards it.
	Log *slog.Logger
	// Hooks for metrics.
	Hooks Hooks
}

// Status is how a resource stands with the kubelet.
type Status struct {
	// Registered: the kubelet accepted the resource, has its first list and
	// keeps the stream open.
	Registered bool
	// Reason is why it is not, in words for an administrator.
	Reason string
}

// registerWithin bounds a Register call, and with it how long after its socket
// was made another instance can have registered.
const registerWithin = 15 * time.Second

// timing is what tests shorten.
type timing struct {
	register time.Duration // for one Register call
	stream   time.Duration // from an accepted Register to ListAndWatch
	alone    time.Duration // from a newer instance's end to registering anew
	probe    time.Duration // between looks whether a newer instance lives
	hangUp   time.Duration // for the kubelet to close its connection
	stop     time.Duration // for calls under way when the server ends
	answer   time.Duration // for one Allocate or GetPreferredAllocation call
	window   time.Duration // between two changes of a list
}

// The kubelet holds Register for up to 10 s while it dials back
// (pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go), and calls Allocate
// without a deadline while no other pod is admitted: an answer comes within a
// second. It writes its whole checkpoint for every list, hence the window.
func defaultTiming() timing {
	return timing{
		register: registerWithin,
		stream:   5 * time.Second,
		alone:    time.Second,
		probe:    time.Second,
		hangUp:   100 * time.Millisecond,
		stop:     time.Second,
		answer:   900 * time.Millisecond,
		window:   50 * time.Millisecond,
	}
}

// Plugin offers one resource to the kubelet.
type Plugin struct {
	resource string
	watch    *KubeletWatch
	source   Source
	log      *slog.Logger
	hooks    Hooks
	timing   timing

	mu      sync.Mutex
	status  Status
	changed chan struct{}
}

// New makes a Plugin; Run brings it to life.
func New(o Options) *Plugin {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Plugin{
		resource: o.Resource,
		watch:    o.Watch,
		source:   o.Source,
		log:      log.With("resource", o.Resource),
		hooks:    o.Hooks,
		timing:   defaultTiming(),
		status:   Status{Reason: "not started"},
		changed:  make(chan struct{}),
	}
}

// Run serves and registers the resource until ctx is cancelled, which is no
// error; it never gives up. On the way out streams end before the socket goes,
// so that the kubelet sees all devices Unhealthy at once.
func (p *Plugin) Run(ctx context.Context) error {
	p.setStatus(Status{Reason: "not registered yet"})
	defer p.setStatus(Status{Reason: "stopped"})
	var (
		backoff backoff
		tried   uint64                            // generation of kubelet.sock that was tried last
		last    = registration{ended: CauseStart} // the one before this
	)
	for ctx.Err() == nil {
		kubelet, changed := p.watch.Kubelet()
		if !kubelet.Present {
			p.setStatus(Status{Reason: "the kubelet's socket does not exist"})
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if kubelet.Generation != tried {
			tried = kubelet.Generation
			backoff.reset()
		}
		r := p.register(ctx, last)
		if ctx.Err() != nil {
			break
		}
		if r.generation != 0 {
			tried = r.generation
		}
		delay := backoff.next(r, time.Since(kubelet.Since))
		if r.err != nil {
			p.refused(r, delay)
		} else {
			last = r
			p.setStatus(Status{Reason: r.ended.words()})
			p.log.Info("registration ended", "reason", string(r.ended))
		}
		p.watch.await(ctx, tried, delay)
	}
	return nil
}

// registered reports that the kubelet has the resource and its first list.
func (p *Plugin) registered(cause Cause, took time.Duration) {
	p.setStatus(Status{Registered: true})
	p.log.Info("registered", "reason", string(cause), "duration_seconds", took.Seconds())
	if p.hooks.Registered != nil {
		p.hooks.Registered(cause, took)
	}
}

// refused reports once why there is no registration, and again when the reason
// changes.
func (p *Plugin) refused(r registration, delay time.Duration) {
	if !r.connected {
		// That is a kubelet which is down or just coming up.
		if delay > retryFast && p.setStatus(Status{Reason: r.err.Error()}) {
			p.log.Info("waiting for the kubelet", "reason", r.err)
		}
		return
	}
	if p.hooks.Refused != nil {
		p.hooks.Refused(r.err)
	}
	// Every attempt has a socket of its own: its name would make each reason
	// a new one.
	reason := r.err.Error()
	if r.socket != "" {
		reason = strings.ReplaceAll(reason, r.socket, "gdp-*.sock")
	}
	if p.setStatus(Status{Reason: reason}) {
		p.log.Warn("registration failed", "reason", reason)
	}
}

// Registered reports whether the kubelet accepted the resource, has its first
// list and keeps the stream open.
func (p *Plugin) Registered() bool {
	s, _ := p.Status()
	return s.Registered
}

// Status returns how the resource stands with the kubelet and a channel that is
// closed when that changes.
func (p *Plugin) Status() (Status, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.changed
}

// setStatus publishes s and reports whether it differs from what was published.
func (p *Plugin) setStatus(s Status) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == s {
		return false
	}
	p.status = s
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}
