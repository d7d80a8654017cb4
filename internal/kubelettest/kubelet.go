// Package kubelettest is a fake kubelet for device plugins and DRA drivers: the
// registration server, the client of every plugin, the count of devices, admission of
// pods, claims and the PodResources API, over real sockets in any directory. It behaves like the kubelet's
// device manager (k8s.io/kubernetes, pkg/kubelet/cm/devicemanager), including its
// faults, and simulates failures of nodes: restarts, rejections, streams that end.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// SocketName is the name of the kubelet's registration socket.
const SocketName = "kubelet.sock"

// Keying is how a kubelet distinguishes the instances of one resource's plugin.
type Keying string

const (
	// ByResource: not at all. When any stream of a resource ends, the plugin that
	// registered last is disconnected. Kubelets up to 1.36.
	ByResource Keying = "resource"
	// BySocket: by the path of their sockets. A second Register on a connected path is
	// rejected and drops the first. Kubelets since 1.37.
	BySocket Keying = "socket"
)

// Options of a Kubelet.
type Options struct {
	// Dir is the device plugin directory. It is made if it is missing.
	Dir string
	// Keying defaults to ByResource.
	Keying Keying
	// PodResources is the path of the PodResources socket; empty is none.
	PodResources string
	// Registry is the directory of the sockets of DRA drivers; empty is a kubelet without
	// DRA. FormerDRA: it speaks v1beta1 with them, and v1alpha1 of health.
	Registry  string
	FormerDRA bool
	// DialTimeout bounds the connection to a registering plugin; 0 is the kubelet's 10
	// s.
	DialTimeout time.Duration
	// StopGrace is how long a resource without a plugin is still counted; 0 is the
	// kubelet's 5 min.
	StopGrace time.Duration
	// BeforeListen is called when kubelet.sock is bound and still refuses connections,
	// BeforeDial when a plugin registers, before it is dialed. Either may be nil.
	BeforeListen func()
	BeforeDial   func(resource, endpoint string)
}

// Kubelet is the fake kubelet. Like a checkpoint, its known resources and admitted pods
// survive restarts.
type Kubelet struct {
	opts Options

	mu        sync.Mutex
	changed   chan struct{}
	process   *process // nil while it is stopped
	resources map[string]*resource
	requests  []Request
	admitted  map[Claim]*Admission
	claims    map[string]*preparedClaim // by UID
	drivers   []*driver                 // registered ones, newest last
	faults    faults
}

// faults are injected faults.
type faults struct {
	refuse     error
	hang       chan struct{} // closed when Register may continue
	noStreams  bool
	refusePods error
}

// process is one run of the kubelet.
type process struct {
	*Kubelet
	v1beta1.UnimplementedRegistrationServer
	podresourcesv1.UnimplementedPodResourcesListerServer
	server *grpc.Server
	wg     sync.WaitGroup
	stop   context.CancelFunc
	// clients by resource or socket, according to Keying. open are the connected ones,
	// including replaced ones, newest last.
	clients map[string]*client
	open    []*client
}

// New returns a stopped Kubelet.
func New(o Options) *Kubelet {
	if o.Keying == "" {
		o.Keying = ByResource
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.StopGrace == 0 {
		o.StopGrace = 5 * time.Minute
	}
	return &Kubelet{opts: o, changed: make(chan struct{}), resources: map[string]*resource{}, admitted: map[Claim]*Admission{}, claims: map[string]*preparedClaim{}}
}

// Socket is the path of the registration socket.
func (k *Kubelet) Socket() string { return filepath.Join(k.opts.Dir, SocketName) }

// Start starts the kubelet, in the kubelet's order: all sockets in the directory are
// removed, kubelet.sock is bound, and a little later it listens. Resources of an
// earlier run have no devices until they register again.
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
	k.restart(p)
	for _, l := range listeners {
		p.wg.Go(func() { _ = p.server.Serve(l) })
	}
	if k.opts.Registry != "" {
		p.wg.Go(func() { p.followRegistry(ctx) })
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
	registration, err := listen(k.Socket(), k.opts.BeforeListen)
	if err != nil || k.opts.PodResources == "" {
		return []net.Listener{registration}, err
	}
	if err = os.MkdirAll(filepath.Dir(k.opts.PodResources), 0o750); err == nil {
		_ = os.Remove(k.opts.PodResources)
		var pods net.Listener
		if pods, err = listen(k.opts.PodResources, nil); err == nil {
			return []net.Listener{registration, pods}, nil
		}
	}
	_ = registration.Close()
	return nil, err
}

// restart replaces the process by p, which may be nil.
func (k *Kubelet) restart(p *process) (old *process) {
	k.update(func() {
		old, k.process, k.drivers = k.process, p, nil
		for _, r := range k.resources {
			r.forget()
		}
	})
	return old
}

// Kill ends the kubelet like a signal: connections break, files stay.
func (k *Kubelet) Kill() {
	p := k.restart(nil)
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
// removed. Those of plugins stay until the next start.
func (k *Kubelet) Stop() {
	k.Kill()
	_ = os.Remove(k.Socket())
	if k.opts.PodResources != "" {
		_ = os.Remove(k.opts.PodResources)
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

// listen binds a socket, calls between unless it is nil, and listens. The file stays
// when the listener closes.
func listen(path string, between func()) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("bind %q: %w", path, err)
	}
	if between != nil {
		between()
	}
	if err := unix.Listen(fd, 128); err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	return net.FileListener(f)
}

// RefuseWith makes every Register call fail with err; nil ends that.
func (k *Kubelet) RefuseWith(err error) {
	k.update(func() { k.faults.refuse = err })
}

// HangRegister blocks Register calls until it is called with false, the call is
// cancelled or the kubelet ends.
func (k *Kubelet) HangRegister(hang bool) {
	k.update(func() {
		switch {
		case hang && k.faults.hang == nil:
			k.faults.hang = make(chan struct{})
		case !hang && k.faults.hang != nil:
			close(k.faults.hang)
			k.faults.hang = nil
		}
	})
}

// WithholdStreams makes the kubelet accept registrations without opening a ListAndWatch
// stream.
func (k *Kubelet) WithholdStreams(withhold bool) {
	k.update(func() { k.faults.noStreams = withhold })
}

// RefusePods makes every PodResources call fail with err; nil ends that.
func (k *Kubelet) RefusePods(err error) {
	k.update(func() { k.faults.refusePods = err })
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
