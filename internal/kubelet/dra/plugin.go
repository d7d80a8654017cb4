// Package dra serves devices by dynamic resource allocation, as the kubelet plugin of a DRA driver. It
// has three parts.
//
// The server has the socket (server.go). The kubelet registers the driver there, prepares and releases
// claims, and follows the health of devices.
//
// The publisher makes the ResourceSlices of the node equal to the devices (publisher.go): slices.go
// says what a slice has, and nodeslices.go compares it with the API server. The scheduler finds devices
// there.
//
// The claims are one map (claims.go). A device has one holder for each slot, which the book of holds
// counts. fill.go adds the devices to a claim, metadata.go writes the files that describe them to
// containers, ended.go finds the claims that have ended although the kubelet did not release them, and
// joined.go the pods that start to use a claim later.
package dra

import (
	"cmp"
	"context"
	"log/slog"
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
	// PodState says whether processes of a pod run. Known asks the kubelet, and returns a function that
	// reports whether it lists a claim. It is an error if the kubelet does not answer. Both are called
	// concurrently.
	PodState func(uid string) holds.PodState
	Known    func(ctx context.Context) (func(cdi.Claim) bool, error)
	// Enter waits until this instance may change claims, and returns a function to call afterwards. It is
	// an error if ctx ends before, or if another instance changes claims from now on.
	Enter func(ctx context.Context) (leave func(), err error)
	// AnswerWithin is how long a call of the kubelet may wait. 0 means until shortly before the
	// kubelet gives up.
	AnswerWithin time.Duration
	// StartWithin is the maximum time from the answer to a prepare to the first process of the pod.
	// 0 means a minute.
	StartWithin time.Duration
	// Changed is called when Status or Problem has changed, Wrote after each write of a slice, and
	// Prepared after each attempt to prepare a claim, with the error if it failed. They must not block.
	Changed  func()
	Wrote    func(err error)
	Prepared func(took time.Duration, err error)
	Log      *slog.Logger
}

// Plugin serves the devices of a node. It has two sides: Run serves the kubelet, Publish
// writes to the API server.
type Plugin struct {
	Options
	*status
	timing timing
	claims *claims
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
	// hang is how long a call of the kubelet may take to return its error after AnswerWithin.
	hang time.Duration
	// poll is the time between the first attempts of a call that waits.
	poll time.Duration
}

// answerWithin is how long a call of the kubelet may wait. The kubelet gives up after 45 s
// (defaultClientCallTimeout in pkg/kubelet/cm/dra/plugin/dra_plugin.go, 1.36 and 1.37).
const answerWithin = 40 * time.Second

// startWithin is how long the kubelet may need to start the first process of a pod after a prepare.
const startWithin = time.Minute

// New makes a Plugin; Run and Publish run it.
func New(o Options) *Plugin {
	o.AnswerWithin = cmp.Or(o.AnswerWithin, answerWithin)
	o.StartWithin = cmp.Or(o.StartWithin, startWithin)
	p := &Plugin{
		Options: o,
		status: &status{
			changed:    o.Changed,
			log:        o.Log,
			registered: make(chan struct{}),
		},
		timing: timing{
			jitter:   3 * time.Second,
			calm:     30 * time.Second,
			retry:    time.Second,
			maxRetry: 30 * time.Second,
			refill:   time.Second,
			burst:    4,
			hang:     2 * time.Second,
			poll:     100 * time.Millisecond,
		},
	}
	p.claims = &claims{
		Plugin:   p,
		newPods:  make(chan struct{}, 1),
		released: make(chan struct{}, 1),
		listed:   make(chan func(cdi.Claim) bool, 1),
		byUID:    map[string]*prepared{},
	}
	return p
}

// Load reads the claims that earlier instances have prepared. It is called before the first call of the
// kubelet is answered, when no other instance answers any more.
func (p *Plugin) Load() { p.claims.load() }

// Publish publishes the devices as the ResourceSlices of the node, which stay, until ctx is cancelled, which is
// no error. Only one instance on a node may.
func (p *Plugin) Publish(ctx context.Context) error {
	newPublisher(p).run(ctx)
	return nil
}

// NewPods says that the host may have new pods. It does not block.
//
// A pod that joins a prepared claim is not announced otherwise: the kubelet prepares a claim for
// the first pod only (prepareResources in pkg/kubelet/cm/dra/manager.go). The scheduler has
// reserved the claim for the pod before it binds the pod to the node, so the API server knows the
// pod when its first cgroup appears. After kubectl delete --force nobody knows it any more.
func (p *Plugin) NewPods() { p.claims.readPods() }

// Sweep has the claims removed that have ended without NodeUnprepareResources: a kubelet that lost
// its own state does not release them. known reports whether the kubelet lists a claim. Sweep does not block.
func (p *Plugin) Sweep(known func(cdi.Claim) bool) {
	select {
	case p.claims.listed <- known:
	default: // an earlier answer does the same
	}
}

// Registered returns a channel that is closed when the kubelet has first accepted the driver.
func (p *Plugin) Registered() <-chan struct{} { return p.registered }

// Status is the state of the registration with the kubelet.
func (p *Plugin) Status() Status { return p.get().registration() }

// Problem is why a device can't be offered and what to change, for an administrator. It is empty if
// there is nothing to change, for example while the API server is unreachable.
func (p *Plugin) Problem(id string) string {
	if p.Node == "" {
		return "the name of the node is not known: set --node-name"
	} else if p.Claims.Dir == "" {
		return "devices are injected by CDI names: set --cdi-dir"
	}
	return p.get().problem(id)
}
