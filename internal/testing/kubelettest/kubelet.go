// Package kubelettest is a fake kubelet for device plugins and DRA drivers: the
// registration server, the client of every plugin, the count of devices, admission of
// pods, claims and the PodResources API, over real sockets in any directory. It behaves
// like the kubelet's device manager (k8s.io/kubernetes, pkg/kubelet/cm/devicemanager),
// including its faults, and simulates failures of nodes: restarts, rejections, streams
// that end.
package kubelettest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Keying is how a kubelet distinguishes the instances of one resource's plugin.
type Keying string

const (
	// ByResource: not at all. When any stream of a resource ends, the plugin that
	// registered last is disconnected. This is the rule of kubelets up to 1.36.
	ByResource Keying = "resource"
	// BySocket: by the path of their sockets. A second Register on a connected path is
	// rejected and drops the first. This is the rule since 1.37.
	BySocket Keying = "socket"
)

// Options of a Kubelet.
type Options struct {
	// Dir is the device plugin directory, which Start creates.
	Dir string
	// Keying defaults to ByResource.
	Keying Keying
	// PodResources is the path of the PodResources socket; empty is none.
	PodResources string
	// Registry is the directory of DRA drivers' sockets; empty is a kubelet without DRA.
	Registry string
	// FormerHealth selects the former service for the health of DRA's devices, v1alpha1.
	FormerHealth bool
	// OnRegister is called when a plugin or driver registers, before the kubelet connects
	// to it. An error rejects the registration. It may be nil.
	OnRegister func(ctx context.Context, name, socket string) error
	// Listen makes a socket; nil is net.ListenUnix.
	Listen func(path string) (net.Listener, error)
}

// Kubelet is the fake kubelet. Like a checkpoint, its known resources and admitted pods
// survive restarts.
type Kubelet struct {
	opts Options

	mu            sync.Mutex
	changed       chan struct{}
	process       *process // nil while it is stopped
	resources     map[string]*resource
	registerCalls map[string][]string // endpoints by resource
	admitted      map[Request]*Admission
	admitting     Request           // of the running Allocate call of Admit
	removed       []checkpointEntry // of pods whose devices are not freed yet
	uids          map[pod]string
	pods          int                       // counts UIDs
	claims        map[string]*preparedClaim // by UID
	drivers       []*driver                 // registered ones, newest last

	withholdStreams bool
	podsErr         error // of every PodResources call
}

// process is one run of the kubelet.
type process struct {
	*Kubelet
	v1beta1.UnimplementedRegistrationServer
	podresourcesv1.UnimplementedPodResourcesListerServer
	server  *grpc.Server
	wg      sync.WaitGroup
	stop    context.CancelFunc
	clients map[string]*client // by resource or socket, according to Keying
	open    []*client          // all connected clients, newest last; some lost their key to another
}

// New returns a stopped Kubelet.
func New(o Options) *Kubelet {
	o.Keying = cmp.Or(o.Keying, ByResource)
	if o.OnRegister == nil {
		o.OnRegister = func(context.Context, string, string) error { return nil }
	}
	if o.Listen == nil {
		o.Listen = listenUnix
	}
	return &Kubelet{
		opts:          o,
		changed:       make(chan struct{}),
		resources:     map[string]*resource{},
		registerCalls: map[string][]string{},
		admitted:      map[Request]*Admission{},
		uids:          map[pod]string{},
		claims:        map[string]*preparedClaim{},
	}
}

// Socket is the path of the registration socket.
func (k *Kubelet) Socket() string { return filepath.Join(k.opts.Dir, "kubelet.sock") }

// Start starts the kubelet, in the kubelet's order: it removes all sockets in the directory,
// binds kubelet.sock and serves. Resources of an earlier run have no devices until their
// plugins register again.
func (k *Kubelet) Start() error {
	p := &process{Kubelet: k, server: grpc.NewServer(grpc.WaitForHandlers(true)), clients: map[string]*client{}}
	v1beta1.RegisterRegistrationServer(p.server, p)
	podresourcesv1.RegisterPodResourcesListerServer(p.server, p)
	listeners, err := k.listen()
	if err != nil {
		return fmt.Errorf("start kubelet: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	k.replace(p)
	for _, l := range listeners {
		p.wg.Go(func() {
			_ = p.server.Serve(l)
		})
	}
	if k.opts.Registry != "" {
		p.wg.Go(func() {
			p.followRegistry(ctx)
		})
	}
	return nil
}

func (k *Kubelet) listen() ([]net.Listener, error) {
	if err := os.MkdirAll(k.opts.Dir, 0o750); err != nil {
		return nil, err
	}
	if err := k.removeSockets(); err != nil {
		return nil, err
	}
	var listeners []net.Listener
	for _, path := range []string{k.Socket(), k.opts.PodResources} {
		if path == "" {
			continue
		}
		_ = os.MkdirAll(filepath.Dir(path), 0o750)
		_ = os.Remove(path)
		l, err := k.opts.Listen(path)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// replace replaces the process by p, nil to stop it.
func (k *Kubelet) replace(p *process) (old *process) {
	k.update(func() {
		old = k.process
		k.process = p
		k.drivers = nil
		for _, r := range k.resources {
			r.forget()
		}
	})
	return old
}

// Kill ends the kubelet like a signal: connections break, files stay.
func (k *Kubelet) Kill() {
	p := k.replace(nil)
	if p == nil {
		return
	}
	p.stop()
	p.server.Stop()
	p.mu.Lock()
	open := slices.Clone(p.open)
	p.mu.Unlock()
	for _, c := range open {
		c.close()
	}
	p.wg.Wait()
}

// Stop ends the kubelet gracefully: plugins are disconnected and its own sockets
// removed. Sockets of plugins stay until the next start.
func (k *Kubelet) Stop() {
	k.Kill()
	for _, path := range []string{k.Socket(), k.opts.PodResources} {
		if path != "" {
			_ = os.Remove(path)
		}
	}
}

// Restart kills the kubelet and starts it again.
func (k *Kubelet) Restart() error {
	k.Kill()
	return k.Start()
}

// removeSockets removes every socket in the directory, of any owner.
func (k *Kubelet) removeSockets() error {
	entries, err := os.ReadDir(k.opts.Dir)
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(k.opts.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// listenUnix makes a socket, whose file stays when the listener closes.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// WithholdStreams makes the kubelet accept registrations without opening a ListAndWatch
// stream.
func (k *Kubelet) WithholdStreams(withhold bool) {
	k.update(func() {
		k.withholdStreams = withhold
	})
}

// RefusePods makes every PodResources call fail with err; nil ends that.
func (k *Kubelet) RefusePods(err error) {
	k.update(func() {
		k.podsErr = err
	})
}

// CutStream ends the newest ListAndWatch stream of a resource. The plugin gets no other
// notice, and no socket changes.
func (k *Kubelet) CutStream(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process == nil {
		return
	}
	for _, c := range slices.Backward(k.process.open) {
		if c.resource == name {
			c.cut()
			return
		}
	}
}

// List is a list that a plugin sent.
type List struct {
	At      time.Time
	Devices []*v1beta1.Device
}

// Healthy returns the IDs of the healthy devices, sorted.
func (l List) Healthy() []string { return l.ids(true) }

// Unhealthy returns the IDs of the other devices, sorted.
func (l List) Unhealthy() []string { return l.ids(false) }

func (l List) ids(healthy bool) []string {
	var ids []string
	for _, d := range l.Devices {
		if (d.GetHealth() == v1beta1.Healthy) == healthy {
			ids = append(ids, d.GetID())
		}
	}
	slices.Sort(ids)
	return ids
}

// Count is a resource in the node's status.
type Count struct {
	Known                 bool // the node's status has the resource
	Capacity, Allocatable int
}

// update changes the state and wakes all waiters.
func (k *Kubelet) update(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of the kubelet's state.
func (k *Kubelet) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// WaitFor waits until condition holds; it is evaluated at once and after every change. The
// error is ctx's.
func (k *Kubelet) WaitFor(ctx context.Context, condition func() bool) error {
	for {
		changed := k.Changed()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the kubelet: %w", ctx.Err())
		}
	}
}

// WaitAllocatable waits until n devices of the resource are allocatable.
func (k *Kubelet) WaitAllocatable(ctx context.Context, name string, n int) error {
	err := k.WaitFor(ctx, func() bool {
		c := k.Count(name)
		return c.Known && c.Allocatable == n
	})
	if err != nil {
		return fmt.Errorf("%q: have %+v, want %d allocatable: %w", name, k.Count(name), n, err)
	}
	return nil
}

// Resources lists the names of all resources that ever registered, sorted.
func (k *Kubelet) Resources() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.resources))
}

// Count returns a resource's count in the node's status. A resource without a plugin keeps
// its capacity, in the kubelet for five minutes.
func (k *Kubelet) Count(name string) (c Count) {
	k.read(name, func(r *resource) {
		c = Count{Known: true, Capacity: len(r.devices), Allocatable: len(r.healthy())}
	})
	return c
}

// read calls f with a known resource.
func (k *Kubelet) read(name string, f func(*resource)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.resources[name]; r != nil {
		f(r)
	}
}

// Lists returns the lists received for a resource, oldest first, up to a limit.
func (k *Kubelet) Lists(name string) (lists []List) {
	k.read(name, func(r *resource) {
		lists = slices.Clone(r.lists)
	})
	return lists
}

// Latest returns the latest list received for a resource, in any run of the kubelet,
// and how many were received in total.
func (k *Kubelet) Latest(name string) (latest List, received int) {
	k.read(name, func(r *resource) {
		if received = r.received; received > 0 {
			latest = r.lists[len(r.lists)-1]
		}
	})
	return latest, received
}

// Connected returns the paths of the connected sockets of a resource.
func (k *Kubelet) Connected(name string) (sockets []string) {
	k.read(name, func(r *resource) {
		for _, c := range r.connected {
			sockets = append(sockets, c.socket)
		}
	})
	return sockets
}

// Registrations returns how often the kubelet accepted a resource.
func (k *Kubelet) Registrations(name string) (n int) {
	k.read(name, func(r *resource) {
		n = r.registrations
	})
	return n
}

// RegisterCalls returns the endpoints of all Register calls for a resource, accepted or not.
func (k *Kubelet) RegisterCalls(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.registerCalls[name])
}
