package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/watch"
	"github.com/generic-dp/generic-dp/plugin"
)

// Getter reads objects of the API server, see kubeapi.Client.
type Getter interface {
	Get(ctx context.Context, path string, into any) error
}

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// Registry is the kubelet's directory of registration sockets,
	// "/var/lib/kubelet/plugins_registry". It may be mounted anywhere: the kubelet goes by
	// its own path of a socket in it.
	Registry string
	// Node is the name of the node, and of its pool.
	Node string
	API  Getter
	// Claims has the prepared claims; Metadata is the directory of what tells their
	// containers about devices, at the same path on the host.
	Claims   *cdi.Writer
	Metadata string
	// Devices are all devices, for the health stream and the metadata of claims.
	Devices *List
	// Inject returns what one container gets for devices of this driver together, by their
	// names in the pool, with repeats for several slots, and those devices in the same
	// order, with their CDI names. Everything that it names exists. A device that is not
	// offered by DRA now, or not healthy, is an error. It is called concurrently; a panic
	// fails only its call.
	Inject func(ctx context.Context, names []string) (r device.Response, devices []Device, err error)
	// Changed is called when Status has changed, Prepared when a claim was prepared, or
	// with err could not be. They must not block; nil does nothing.
	Changed  func()
	Prepared func(took time.Duration, err error)
	Log      *slog.Logger
}

// Server is the kubelet's side: it is registered, prepares claims and tells the health of
// devices.
//
// One socket in the registry serves it all: a kubelet that is told no endpoint takes that
// of the registration, by its own path. Each instance has a fresh name, by which the
// kubelet tells them apart: it keeps both during a rolling update. At its start it finds
// the sockets by itself.
type Server struct {
	ServerOptions
	preparing chan struct{} // capacity 1: claims are prepared one at a time

	mu       sync.Mutex
	status   plugin.Status
	accepted bool // by the kubelet, which may have ended since
	problem  string
}

// NewServer makes a Server; Run runs it.
func NewServer(o ServerOptions) *Server {
	return &Server{ServerOptions: o, preparing: make(chan struct{}, 1), status: plugin.Status{Reason: reasonWaiting}}
}

const (
	reasonWaiting = "the kubelet has not registered the driver yet"
	reasonGone    = "the kubelet has disconnected"
	// stopWithin is how long calls may run when the driver ends.
	stopWithin = time.Second
)

// Status is the state of the registration.
func (d *Server) Status() plugin.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// Problem is why the kubelet can't use the driver, for an administrator to change
// something; empty if it can, or will.
func (d *Server) Problem() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problem
}

// update changes the state by f, with the status that follows from it.
func (d *Server) update(f func() plugin.Status) {
	d.mu.Lock()
	status, problem := d.status, d.problem
	d.status = f()
	now, changed := d.status, d.status != status || d.problem != problem
	d.mu.Unlock()
	switch {
	case !changed:
		return
	case now.Registered:
		d.Log.Info("registered", "driver", Driver)
	default:
		d.Log.Info("not registered", "driver", Driver, "reason", now.Reason)
	}
	if d.Changed != nil {
		d.Changed()
	}
}

// Run serves the kubelet until ctx is cancelled, which is no error; it never gives up.
func (d *Server) Run(ctx context.Context) error {
	files := watch.New(watch.Options{
		Source: "plugin registry", Events: watch.Names, Dirs: func() []string { return []string{d.Registry, filepath.Dir(d.Registry)} },
		Resync: 2 * time.Minute, Poll: time.Second, Log: d.Log,
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = files.Run(ctx) }) // always nil
	for ctx.Err() == nil {
		_, _ = plugin.SweepSockets(d.Registry) // the kubelet keeps trying dead ones
		socket, err := plugin.Listen(d.Registry, Driver)
		if err == nil {
			d.serve(ctx, socket, files.Changes())
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s does not exist", d.Registry)
		}
		d.update(func() plugin.Status {
			d.problem = fmt.Sprintf("--plugins-registry: %v: set dra.enabled in the chart, which mounts it, or name the kubelet's", err)
			return plugin.Status{Reason: d.problem}
		})
		select {
		case <-ctx.Done():
		case <-files.Changes():
		}
	}
	return nil
}

// serve serves on a socket until ctx ends or the socket is gone. The socket goes first, so
// that the kubelet no longer calls.
func (d *Server) serve(ctx context.Context, socket *plugin.Socket, changes <-chan struct{}) {
	conns := &connections{Server: d}
	server := grpc.NewServer(
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10),
		grpc.StatsHandler(conns), grpc.UnaryInterceptor(d.recovered),
	)
	s := &service{Server: d, quit: make(chan struct{})}
	registration.RegisterRegistrationServer(server, s)
	claims.RegisterDRAPluginServer(server, s)
	health.RegisterDRAResourceHealthServer(server, s)
	// Kubelets up to 1.33 know the claims' service by its former name only, those up to
	// 1.36 that of health. The messages are the same, but for share_id, which they skip.
	former := claims.DRAPlugin_ServiceDesc
	former.ServiceName = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
	server.RegisterService(&former, s)
	formerHealth := health.DRAResourceHealth_ServiceDesc
	formerHealth.ServiceName = "v1alpha1.DRAResourceHealth"
	server.RegisterService(&formerHealth, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket.Listener) }()
	d.update(func() plugin.Status {
		d.accepted, d.problem = false, ""
		return plugin.Status{Reason: reasonWaiting}
	})
	defer func() {
		socket.Remove()
		close(s.quit)
		timer := time.AfterFunc(stopWithin, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	for socket.Present() {
		select {
		case <-ctx.Done():
			return
		case err := <-served:
			d.Log.Warn("server failed", "driver", Driver, "err", err)
			return
		case <-changes:
			_, _ = plugin.SweepSockets(d.Registry)
		}
	}
	d.Log.Warn("the driver's socket was removed: making another", "path", socket.Path)
}

// service is one socket's server.
type service struct {
	registration.UnimplementedRegistrationServer
	claims.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
	*Server
	quit chan struct{} // closed: streams end
}

// recovered makes a panic the error of its call.
func (d *Server) recovered(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer d.recover(info.FullMethod, &err)
	return handler(ctx, req)
}

func (d *Server) recover(call string, err *error) {
	if v := recover(); v != nil {
		d.Log.Error("panic", "call", call, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s: internal error: panic: %v", Driver, v)
	}
}

// GetInfo is the kubelet's question when it finds the socket. Without an endpoint it takes
// the socket's own path.
func (s *service) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: "DRAPlugin", Name: Driver,
		SupportedVersions: []string{"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"},
	}, nil
}

// NotifyRegistrationStatus is how the kubelet decided.
func (s *service) NotifyRegistrationStatus(_ context.Context, r *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	s.update(func() plugin.Status {
		s.accepted, s.problem = r.GetPluginRegistered(), ""
		if !s.accepted {
			s.problem = "the kubelet refuses the driver, which needs Kubernetes 1.34 or later: " + r.GetError()
		}
		return plugin.Status{Registered: s.accepted, Reason: s.problem}
	})
	return &registration.RegistrationStatusResponse{}, nil
}

// lease is how long the kubelet believes a report, in seconds: as long as the stream is
// there. By default it is 30 s, and each node would wake up for it.
const lease = int64(10 * 365 * 24 * time.Hour / time.Second)

// NodeWatchResources sends the health of all devices at once and after every change.
func (s *service) NodeWatchResources(_ *health.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	for {
		devices, changed := s.Devices.Get()
		if err := stream.Send(s.report(devices)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.quit:
			return nil
		}
	}
}

func (d *Server) report(devices []Device) *health.NodeWatchResourcesResponse {
	now := time.Now().Unix()
	r := &health.NodeWatchResourcesResponse{}
	for i := range devices {
		v := health.HealthStatus_UNHEALTHY
		if devices[i].State == Healthy || devices[i].State == Withheld {
			v = health.HealthStatus_HEALTHY
		}
		r.Devices = append(r.Devices, &health.DeviceHealth{
			Device: &health.DeviceIdentifier{PoolName: d.Node, DeviceName: devices[i].Name()},
			Health: v, Message: devices[i].Reason, LastUpdatedTime: now, HealthCheckTimeoutSeconds: lease,
		})
	}
	return r
}

// connections counts the kubelet's connections: one that is registered keeps one open.
type connections struct {
	*Server
	open int // guarded by update
}

func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	c.update(func() plugin.Status {
		switch s.(type) {
		case *stats.ConnBegin:
			c.open++
		case *stats.ConnEnd:
			c.open--
		}
		switch {
		case !c.accepted:
			return c.status
		case c.open > 0:
			return plugin.Status{Registered: true}
		default:
			return plugin.Status{Reason: reasonGone}
		}
	})
}
