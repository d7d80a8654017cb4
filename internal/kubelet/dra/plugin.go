// Package dra serves devices by dynamic resource allocation, as the kubelet plugin of a DRA driver.
//
// The scheduler finds devices in the ResourceSlices of the node. slices.go describes a device
// there, node.go compares the slices with the API server, and publish.go decides when to write
// them.
//
// The kubelet prepares the claims of a pod and releases them. server.go has the socket. prepare.go
// and fill.go prepare a claim, unprepare.go releases it, and metadata.go writes the files that
// describe its devices to containers.
//
// A device has one holder for each slot. records.go remembers which claim holds which devices,
// ended.go decides when a claim has ended although the kubelet did not release it, and joined.go
// follows the pods that start to use a claim later.
package dra

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// Driver is the name of the driver: in ResourceSlices and claims, of its sockets, and the
// domain of its attributes and taints.
const Driver = device.OwnDomain

// PoolName is the name of the pool of a node. Its second part distinguishes it from the pools of other
// drivers, which often have the bare name of the node: the scheduler of 1.36 keeps shared counters by
// the name of the pool, whatever its driver.
func PoolName(node string) string { return node + "/generic-dp" }

// Options of a Plugin.
type Options struct {
	// API is the client of the API server.
	API *kubeapi.Client
	// Node is the name of the node.
	Node string
	// Registry is the kubelet's directory of registration sockets,
	// "/var/lib/kubelet/plugins_registry". It may be mounted anywhere: the kubelet uses its
	// own path of a socket in it.
	Registry string
	// Claims has the files of the prepared claims. Metadata is the directory of the files that
	// describe devices to containers, at the same path on the host.
	Claims   *cdi.Writer
	Metadata string
	// Devices are all devices. Nothing is published before they are set.
	Devices *List
	// Inject returns what one container gets for devices of this driver together, by their
	// names in the pool, with repeats for several slots, and those devices in the same
	// order, with their CDI names. amounts are what it gets of shared capacities, by name of the
	// device; other devices are not shared. Everything that it names exists. The error for a device
	// that is not offered by DRA now, or not healthy, wraps ErrNotOffered. It is called
	// concurrently; a panic fails only its call.
	Inject func(ctx context.Context, names []string, amounts Amounts) (r device.Response, devices []Device, err error)
	// Book knows who holds which device. The plugin records the claims in it.
	Book *holds.Book
	// PodState says whether processes of a pod run. If it is nil, the state of every pod is
	// unknown. Known asks the kubelet, and returns a function that reports whether it lists a
	// claim. It is an error if the kubelet does not answer. If Known is nil,
	// the kubelet counts as silent. Both are called concurrently.
	PodState func(uid string) holds.PodState
	Known    func(ctx context.Context) (func(cdi.Claim) bool, error)
	// Enter waits until this instance may change claims, and returns a function to call afterwards. It is
	// an error if ctx ends before, or if another instance changes claims from now on. If it is nil, this
	// instance always may.
	Enter func(ctx context.Context) (leave func(), err error)
	// AnswerWithin is how long a call of the kubelet may wait. 0 means until shortly before the
	// kubelet gives up.
	AnswerWithin time.Duration
	// StartWithin is the maximum time from the answer to a prepare to the first process of the pod.
	// 0 means a minute.
	StartWithin time.Duration
	// Changed is called when Status or Problem has changed, Wrote after each write of a slice, and
	// Prepared after each attempt to prepare a claim, with the error if it failed. They must not block.
	// Each of them may be nil.
	Changed  func()
	Wrote    func(err error)
	Prepared func(took time.Duration, err error)
	Log      *slog.Logger
}

// Plugin serves the devices of a node. It has two sides: Run serves the kubelet, Publish
// writes to the API server.
type Plugin struct {
	Options
	timing  timing
	records records
	locks   locks         // by UID of a claim: calls for one claim run one at a time
	slices  *nodeSlices   // of the goroutine of Publish
	newPods chan struct{} // see NewPods; it has capacity 1
	// registered is closed when the kubelet first accepted the driver, stopped when Run ends.
	registered chan struct{}
	stopped    chan struct{}

	mu    sync.Mutex
	state state
}

// timing is what tests shorten.
type timing struct {
	// jitter is the maximum delay of a list: all nodes may start, or lose the API server,
	// at once.
	jitter time.Duration
	// calm is the maximum delay of a list after a watch that ended while the slices were right.
	calm time.Duration
	// retry and maxRetry bound the time between failed attempts.
	retry, maxRetry time.Duration
	// refill is the time between writes in a storm, which begins after burst writes: a
	// device that is plugged again is gone, settling and healthy within a second.
	refill time.Duration
	burst  int
	// sweep bounds all requests of a sweep, for which the answer about holders waits.
	sweep time.Duration
	// answer is how long a call of the kubelet may wait, and hang is how long a call may then take to
	// return its error.
	answer, hang time.Duration
	// poll is the time between the first attempts of a call that waits.
	poll time.Duration
	// start is the maximum time from the answer to a prepare to the first process of the pod.
	start time.Duration
}

// answerWithin is how long a call of the kubelet may wait. The kubelet gives up after 45 s
// (defaultClientCallTimeout in pkg/kubelet/cm/dra/plugin/dra_plugin.go, 1.36 and 1.37).
const answerWithin = 40 * time.Second

// startWithin is how long the kubelet may need to start the first process of a pod after a prepare.
const startWithin = time.Minute

// Status is the state of the registration with the kubelet.
type Status struct {
	// Registered means that the kubelet accepted the driver and is connected.
	Registered bool
	// Reason says why the driver is not registered, for an administrator.
	Reason string
}

// state is what the two sides know about the kubelet and the API server.
type state struct {
	accepted    bool              // by the kubelet, which may have ended since
	connections int               // of the kubelet
	unserved    string            // why the kubelet can't use the driver; empty if it can, or will
	unpublished string            // why the API server lacks devices; empty if nobody has to change anything
	refused     map[string]string // why the API server refuses single devices, by ID; read-only
}

// registration returns the state for Status. It names one reason, the one to remove first.
func (s state) registration() Status {
	switch {
	case s.unserved != "":
		return Status{Reason: s.unserved}
	case !s.accepted:
		return Status{Reason: "the kubelet has not registered the driver yet"}
	case s.connections == 0:
		return Status{Reason: "the kubelet has disconnected"}
	}
	return Status{Registered: true}
}

// problem is why no device can be offered, empty if nobody has to change anything. The kubelet
// comes before the API server.
func (s state) problem() string { return cmp.Or(s.unserved, s.unpublished) }

// New makes a Plugin; Run and Publish run it. Hooks that are nil become functions that do nothing.
func New(o Options) *Plugin {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Enter == nil {
		o.Enter = func(context.Context) (func(), error) {
			return func() {}, nil
		}
	}
	if o.Wrote == nil {
		o.Wrote = func(error) {}
	}
	if o.Prepared == nil {
		o.Prepared = func(time.Duration, error) {}
	}
	return &Plugin{
		Options: o,
		timing: timing{
			jitter:   3 * time.Second,
			calm:     30 * time.Second,
			retry:    time.Second,
			maxRetry: 30 * time.Second,
			refill:   time.Second,
			burst:    4,
			sweep:    10 * time.Second,
			answer:   cmp.Or(o.AnswerWithin, answerWithin),
			hang:     2 * time.Second,
			poll:     100 * time.Millisecond,
			start:    cmp.Or(o.StartWithin, startWithin),
		},
		records: records{
			files: o.Claims,
			book:  o.Book,
			byUID: map[string]*record{},
		},
		slices:     newNodeSlices(o.API, o.Node),
		newPods:    make(chan struct{}, 1),
		registered: make(chan struct{}),
		stopped:    make(chan struct{}),
	}
}

// Load reads the claims that earlier instances have prepared. It is called before the first call of the
// kubelet is answered, when no other instance answers any more.
func (p *Plugin) Load() {
	if err := p.records.load(time.Now()); err != nil {
		p.Log.Warn("prepared claims can't be read", "cdi_dir", p.Claims.Dir, "err", err)
	}
}

// Status is the state of the registration with the kubelet.
func (p *Plugin) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.registration()
}

// Problem is why a device can't be offered and what to change, for an administrator. It is empty if
// there is nothing to change, for example while the API server is unreachable.
func (p *Plugin) Problem(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Node == "" {
		return "the name of the node is not known: set --node-name"
	} else if p.Claims.Dir == "" {
		return "devices are injected by CDI names: set --cdi-dir"
	}
	if reason := p.state.problem(); reason != "" || p.state.refused[id] == "" {
		return reason
	}
	return "the API server refuses the device: " + p.state.refused[id]
}

// update changes the state by f. f must not block, and must replace refused instead of changing it.
// Logging and Changed follow without the lock.
func (p *Plugin) update(f func(now *state)) {
	p.mu.Lock()
	before := p.state
	f(&p.state)
	now := p.state
	p.mu.Unlock()
	if now.accepted {
		p.closeRegistered()
	}
	registration := now.registration()
	if registration != before.registration() {
		if registration.Registered {
			p.Log.Info("registered", "driver", Driver)
		} else {
			p.Log.Info("not registered", "driver", Driver, "reason", registration.Reason)
		}
	}
	for id, reason := range now.refused {
		if before.refused[id] != reason {
			p.Log.Warn("the API server refuses a device, which is left out", "device", id, "reason", reason)
		}
	}
	otherStatus := registration != before.registration()
	otherProblem := now.problem() != before.problem() || !maps.Equal(now.refused, before.refused)
	if otherStatus || otherProblem {
		p.Changed()
	}
}

// Registered returns a channel that is closed when the kubelet has first accepted the driver.
func (p *Plugin) Registered() <-chan struct{} { return p.registered }

// closeRegistered closes registered the first time. Publish waits for it before its first write.
func (p *Plugin) closeRegistered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.registered:
	default:
		close(p.registered)
	}
}
