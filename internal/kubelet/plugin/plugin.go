// Package plugin serves ONE resource to the kubelet: gRPC server, ListAndWatch
// streams, registration and re-registration. Lists and Allocate responses come from
// a Source.
//
// Serving before registering is the only order that is safe on every kubelet:
//
//   - Every registration has a socket with a fresh name. Kubelets since 1.37
//     tell plugin instances apart by socket path, and a second Register on a
//     connected path corrupts their state.
//   - No Register while an own ListAndWatch stream is alive. Kubelets up to 1.36
//     know a plugin by its resource name alone: when any older stream ends they
//     disconnect the plugin that registered last.
//   - The kubelet never reopens a stream. So its end causes re-registration, like a
//     new kubelet.sock and the removal of the plugin's own socket.
//   - A new instance of the program registers beside the streams of the old one, which
//     has the last word: IsRetired keeps it from registering after the new one. When the
//     streams of the old one end, kubelets up to 1.36 disconnect the new one for 2 to
//     3 ms, until it has registered again.
//   - A socket is unlinked only if it is still the file that this program made.
package plugin

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// Source has the devices of a resource. Its methods are called concurrently. A panic, or an
// Allocate that blocks, only fails the call in which it happens.
type Source interface {
	// Devices returns the latest list, which is immutable, and a channel that is
	// closed when there is a newer one.
	Devices() (list []device.Listed, changed <-chan struct{})
	// Allocate returns what one container gets for the devices ids, which are
	// sorted. A device that is not listed or not healthy is an error. The same ids
	// may come again: a pod's containers share devices with its init containers.
	Allocate(ctx context.Context, ids []string) (device.Response, error)
	// Prefer chooses size of the available ids, including must; an empty result
	// leaves the choice to the kubelet.
	Prefer(available, must []string, size int) []string
}

// Hooks are for metrics. They are called concurrently and must not block.
type Hooks struct {
	// Registered: the kubelet accepted the resource and has its first list.
	Registered func(cause Cause)
	// Refused: an attempt to register failed.
	Refused func()
	// Allocated: an Allocate call was answered, with err where it failed.
	Allocated func(took time.Duration, err error)
}

// Options of a Plugin.
type Options struct {
	// Resource is the full name, "example.com/gpu".
	Resource string
	// Watch follows the directory of the sockets. All plugins of the process share
	// it; its maker runs it.
	Watch *KubeletWatch
	// Source of the devices.
	Source Source
	Log    *slog.Logger
	// Hooks for metrics.
	Hooks Hooks
}

// Status is the state of a registration.
type Status struct {
	// Registered: the kubelet accepted the resource, has its first list and
	// keeps the stream open.
	Registered bool
	// Reason is why it is not registered, for an administrator.
	Reason string
}

const (
	// registerWithin bounds a Register call. The kubelet holds the call for up to 10 s
	// while it dials back (pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go).
	registerWithin = 15 * time.Second
	// completeWithin is how long a registration that has begun may take after the end of the
	// program was requested. The kubelet connects within milliseconds.
	completeWithin = 500 * time.Millisecond
	// answerWithin bounds Allocate and GetPreferredAllocation, which the kubelet calls
	// without a deadline while no other pod is admitted.
	answerWithin = 900 * time.Millisecond
	// The server waits hangUpWithin for the kubelet to close its connection, then
	// stopWithin for running calls.
	hangUpWithin = 100 * time.Millisecond
	stopWithin   = time.Second
)

// timing has the delays that tests shorten.
type timing struct {
	stream time.Duration // limit from an accepted Register to the first list
	// window is the minimum time between two lists: the kubelet writes its whole
	// checkpoint for each.
	window time.Duration
}

// Plugin offers one resource to the kubelet.
type Plugin struct {
	Options
	timing timing
	// again has a value if the list should be sent again although it has not changed. It has
	// capacity 1.
	again chan struct{}
	// tried happens after the first attempt to register, see Tried.
	tried *event

	mu     sync.Mutex
	status Status
}

// event happens once.
type event struct {
	once     sync.Once
	happened chan struct{}
}

func newEvent() *event { return &event{happened: make(chan struct{})} }

// set says that the event has happened. It may be called more than once.
func (e *event) set() {
	e.once.Do(func() {
		close(e.happened)
	})
}

// New makes a Plugin; Run runs it.
func New(o Options) *Plugin {
	o.Log = o.Log.With("resource", o.Resource)
	return &Plugin{
		Options: o,
		timing: timing{
			stream: 5 * time.Second,
			window: 50 * time.Millisecond,
		},
		again:  make(chan struct{}, 1),
		tried:  newEvent(),
		status: Status{Reason: "not started"},
	}
}

// Run serves and registers the resource until ctx is cancelled, which is no error. It never
// gives up. In the end it ends the streams before it removes the socket, so that the kubelet
// sees all devices Unhealthy at once.
func (p *Plugin) Run(ctx context.Context) error {
	p.setStatus(Status{Reason: "not registered yet"})
	defer p.setStatus(Status{Reason: "stopped"})
	var (
		backoff backoff
		tried   uint64                            // the generation of kubelet.sock at the last attempt
		last    = registration{ended: CauseStart} // the last one that succeeded
	)
	for ctx.Err() == nil {
		kubelet, changed := p.Watch.Kubelet()
		if !kubelet.Present {
			p.setStatus(Status{Reason: "the kubelet's socket does not exist"})
			p.tried.set()
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if p.Watch.IsRetired.Load() {
			<-ctx.Done()
			break
		}
		if kubelet.Generation != tried {
			tried = kubelet.Generation
			backoff.reset()
		}
		r := p.keepRegistered(ctx, last)
		if ctx.Err() != nil {
			break
		}
		if r.generation != 0 {
			tried = r.generation
		}
		delay := backoff.next(r, time.Since(kubelet.Since))
		if r.err != nil {
			p.failed(r, delay)
		} else {
			last = r
			p.setStatus(Status{Reason: causeReasons[r.ended]})
			p.Log.Info("registration ended", "reason", string(r.ended))
		}
		p.Watch.await(ctx, tried, delay)
	}
	return nil
}

// ListAgain sends the list to the kubelet again, which makes the kubelet write its checkpoint
// (genericDeviceUpdateCallback, pkg/kubelet/cm/devicemanager/manager.go). It does not block.
func (p *Plugin) ListAgain() { watch.Signal(p.again) }

// registered publishes that the kubelet has the resource and its first list.
func (p *Plugin) registered(cause Cause, took time.Duration) {
	p.setStatus(Status{Registered: true})
	seconds := took.Seconds()
	p.Log.Info("registered", "reason", string(cause), "duration_seconds", seconds)
	p.Hooks.Registered(cause)
	p.tried.set()
}

// Tried returns a channel that is closed when the resource is registered, or when the first attempt to
// register it has failed.
func (p *Plugin) Tried() <-chan struct{} { return p.tried.happened }

// failed publishes and logs why an attempt failed, once for each reason.
func (p *Plugin) failed(r registration, delay time.Duration) {
	p.tried.set()
	status := Status{Reason: r.err.Error()}
	if r.generation == 0 {
		isStarting := delay <= retryFast // its socket is new
		if !isStarting && p.setStatus(status) {
			p.Log.Info("waiting for the kubelet", "err", r.err)
		}
		return
	}
	p.Hooks.Refused()
	if p.setStatus(status) {
		p.Log.Warn("registration failed", "err", status.Reason)
	}
}

// Status returns the state of the registration.
func (p *Plugin) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// setStatus publishes s and reports whether it has changed.
func (p *Plugin) setStatus(s Status) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.status != s
	p.status = s
	return changed
}
