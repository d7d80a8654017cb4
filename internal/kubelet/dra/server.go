package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/sys/watch"
)

// stopWithin is how long calls may run when the driver ends.
const stopWithin = time.Second

// Run serves the kubelet until ctx is cancelled, which is no error; it never gives up.
//
// One socket in the registry serves everything: without an endpoint the kubelet uses the socket
// of the registration, by its own path. Each instance has a fresh name: the kubelet may see the socket
// of the next one before it has seen that the last one is gone. It finds the sockets when it starts.
func (p *Plugin) Run(ctx context.Context) error {
	files := watch.New(watch.Options{
		Source: "plugin registry",
		Events: watch.Names,
		Dirs: func() []string {
			return []string{p.Registry, filepath.Dir(p.Registry)}
		},
		Resync: 2 * time.Minute,
		Poll:   time.Second,
		Log:    p.Log,
	})
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		_ = files.Run(ctx) // always nil
	})
	running.Go(func() {
		p.claims.followEnds(ctx)
	})
	running.Go(func() {
		p.claims.followPods(ctx)
	})
	for ctx.Err() == nil {
		own, err := kubelet.Listen(p.Registry, Driver)
		if err == nil {
			p.serve(ctx, own, files.Changes())
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s does not exist", p.Registry)
		}
		p.update(func(now *state) {
			now.unserved = fmt.Sprintf("--plugins-registry: %v: set dra.enabled in the chart, which mounts it, or name the kubelet's", err)
		})
		select {
		case <-ctx.Done():
		case <-files.Changes():
		}
	}
	return nil
}

// serve serves on a socket until ctx ends or the socket is gone. The socket is removed first, so
// that the kubelet no longer calls.
func (p *Plugin) serve(ctx context.Context, own *kubelet.Socket, changes <-chan struct{}) {
	p.update(func(now *state) {
		now.accepted = false
		now.unserved = ""
	})
	server := grpc.NewServer(
		// The calls are small, and few at a time. The default is 32 KiB for each buffer of a
		// connection.
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10),
		grpc.StatsHandler(connections{p}), grpc.UnaryInterceptor(p.intercept),
	)
	s := &service{Plugin: p, quit: make(chan struct{})}
	registration.RegisterRegistrationServer(server, s)
	drapb.RegisterDRAPluginServer(server, s)
	health.RegisterDRAResourceHealthServer(server, s)
	// Kubelets up to 1.36 only know the former name of the service for health. The messages are the
	// same, except for share_id, which these kubelets skip.
	formerHealth := health.DRAResourceHealth_ServiceDesc
	formerHealth.ServiceName = "v1alpha1.DRAResourceHealth"
	server.RegisterService(&formerHealth, s)
	// Capacity 1: Serve also returns after the loop below has ended.
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(own.Listener)
	}()
	defer func() {
		own.Remove()
		// GracefulStop waits for streams, so they must be told to end.
		close(s.quit)
		timer := time.AfterFunc(stopWithin, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	// Present compares the file with the socket: another program may have removed or replaced it.
	for own.Present() {
		select {
		case <-ctx.Done():
			return
		case err := <-served:
			p.Log.Warn("server failed", "driver", Driver, "err", err)
			return
		case <-changes: // the own socket is the first change
			_, _ = kubelet.Sweep(p.Registry) // the kubelet keeps trying dead ones
		}
	}
	p.Log.Warn("the driver's socket was removed: making another", "path", own.Path)
}

// service is one socket's server. It serves registration, claims and health.
type service struct {
	registration.UnimplementedRegistrationServer
	drapb.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
	*Plugin
	quit chan struct{} // closed: streams end
}

// intercept makes a panic the error of its call.
func (p *Plugin) intercept(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (resp any, err error) {
	defer kubelet.Recovered(p.Log, info.FullMethod, &err)
	return handler(ctx, req)
}

// GetInfo answers the first call of the kubelet on a new socket. Without an endpoint, the kubelet
// uses the path of the socket.
func (s *service) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              "DRAPlugin",
		Name:              Driver,
		SupportedVersions: []string{"v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"},
	}, nil
}

// NotifyRegistrationStatus receives the kubelet's decision. The kubelet calls it after GetInfo,
// once for each registration.
func (s *service) NotifyRegistrationStatus(_ context.Context, r *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	s.update(func(now *state) {
		now.accepted = r.GetPluginRegistered()
		now.unserved = ""
		if !now.accepted {
			now.unserved = "the kubelet refuses the driver, which needs Kubernetes 1.34 or later: " + r.GetError()
		}
	})
	return &registration.RegistrationStatusResponse{}, nil
}

// NodePrepareResources prepares each claim on its own. The files of the claims are the only
// state: the kubelet calls again for a claim after its own restart, and for each sandbox.
func (s *service) NodePrepareResources(ctx context.Context, req *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	// Claims are prepared at the same time: one that waits for its device does not use up the time
	// of the others.
	answers := make([]*drapb.NodePrepareResourceResponse, len(req.GetClaims()))
	var running sync.WaitGroup
	for i, claim := range req.GetClaims() {
		running.Go(func() {
			answers[i] = s.prepare(ctx, claim)
		})
	}
	running.Wait()
	resp := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for i, claim := range req.GetClaims() {
		resp.Claims[claim.GetUid()] = answers[i]
	}
	return resp, nil
}

// prepare prepares one claim. An error is part of the response for this claim, and is logged.
func (p *Plugin) prepare(ctx context.Context, of *drapb.Claim) *drapb.NodePrepareResourceResponse {
	began := time.Now()
	claim := cdi.Claim{
		Namespace: of.GetNamespace(),
		Name:      of.GetName(),
		UID:       of.GetUid(),
	}
	var devices []*drapb.Device // not read before the call has ended
	err := p.inTime(ctx, func(ctx context.Context) error {
		var err error
		devices, err = p.claims.prepare(ctx, claim)
		return err
	})
	took := time.Since(began)
	p.Prepared(took, err)
	if err != nil {
		p.Log.Warn("claim not prepared", "claim", fullName(claim), "err", err, "duration_seconds", took.Seconds())
		return &drapb.NodePrepareResourceResponse{Error: fmt.Sprintf("claim %s: %v", fullName(claim), err)}
	}
	return &drapb.NodePrepareResourceResponse{Devices: devices}
}

// NodeUnprepareResources removes claims. A claim that is not prepared is no error.
func (s *service) NodeUnprepareResources(ctx context.Context, req *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	resp := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	for _, claim := range req.GetClaims() {
		answer := &drapb.NodeUnprepareResourceResponse{}
		// One call after the other: a release does not wait for a device.
		err := s.inTime(ctx, func(ctx context.Context) error {
			return s.claims.unprepare(ctx, claim.GetUid())
		})
		if err != nil {
			name := claim.GetNamespace() + "/" + claim.GetName()
			answer.Error = fmt.Sprintf("claim %s: %v", name, err)
			s.Log.Warn("claim not released", "claim", name, "err", err)
		}
		resp.Claims[claim.GetUid()] = answer
	}
	return resp, nil
}

// inTime runs f until shortly before the kubelet gives up the call, and returns in time even if
// f hangs.
func (p *Plugin) inTime(ctx context.Context, f func(context.Context) error) error {
	if ctx.Err() != nil {
		// The kubelet may have asked for the opposite since.
		return errGivenUp
	}
	return kubelet.Answer(ctx, p.Log, "claim", p.AnswerWithin, p.timing.hang, f)
}

// lease is how long a report is valid for the kubelet, in seconds: as long as the stream exists.
// The default is 30 s, for which each node would have to send reports without a change.
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

// report describes the health of all devices. A withheld device is healthy for the pod that has it.
func (p *Plugin) report(devices []Device) *health.NodeWatchResourcesResponse {
	now := time.Now().Unix()
	r := &health.NodeWatchResourcesResponse{}
	for i := range devices {
		v := health.HealthStatus_UNHEALTHY
		if devices[i].State == Healthy || devices[i].State == Withheld {
			v = health.HealthStatus_HEALTHY
		}
		r.Devices = append(r.Devices, &health.DeviceHealth{
			Device:                    &health.DeviceIdentifier{PoolName: PoolName(p.Node), DeviceName: devices[i].Name()},
			Health:                    v,
			Message:                   devices[i].Reason,
			LastUpdatedTime:           now,
			HealthCheckTimeoutSeconds: lease,
		})
	}
	return r
}

// connections counts the kubelet's connections: the kubelet keeps one to a registered driver.
type connections struct{ *Plugin }

func (c connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c connections) HandleRPC(context.Context, stats.RPCStats)                         {}

// HandleConn counts a connection, or its end. The other methods of stats.Handler do nothing.
func (c connections) HandleConn(_ context.Context, event stats.ConnStats) {
	c.update(func(now *state) {
		switch event.(type) {
		case *stats.ConnBegin:
			now.connections++
		case *stats.ConnEnd:
			now.connections--
		}
	})
}
