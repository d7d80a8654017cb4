package conformance_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
)

const kubeletSocket = devicemanager.Dir + "kubelet.sock"

// registrationProxy replaces the kubelet's socket, so that a test controls registrations.
type registrationProxy struct {
	api.UnimplementedRegistrationServer
	kubelet  api.RegistrationClient
	register register
}

// register answers a registration, which it may forward to the kubelet.
type register func(ctx context.Context, kubelet api.RegistrationClient, r *api.RegisterRequest) (*api.Empty, error)

func (p *registrationProxy) Register(ctx context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	return p.register(ctx, p.kubelet, r)
}

// proxyRegistrations puts a proxy before the running kubelet. It ends with the test, or
// when the kubelet restarts and removes all sockets.
func proxyRegistrations(t testing.TB, register register) {
	t.Helper()
	const behind = devicemanager.Dir + "behind.sock"
	must(t, os.Rename(kubeletSocket, behind))
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, &registrationProxy{kubelet: api.NewRegistrationClient(connect(t, behind)), register: register})
	listen(t, server, kubeletSocket)
}

// connect returns a client of a socket.
func connect(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// listen serves on a socket, which it leaves behind like a kubelet.
func listen(t testing.TB, server *grpc.Server, socket string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// pluginProxy is a proxy between the kubelet and the program's server.
type pluginProxy struct {
	api.UnimplementedDevicePluginServer
	plugin api.DevicePluginClient
	// onList is called with each list before the kubelet gets it.
	onList func(*api.ListAndWatchResponse)
	// onRequest is called before Allocate reaches the program, onResponse before the
	// response reaches the kubelet.
	onRequest, onResponse func()
}

// gate blocks one Allocate call, at onRequest or onResponse of a proxy.
type gate struct{ reached, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

func (g gate) block() {
	close(g.reached)
	<-g.open
}

// proxyPlugins routes every registration through a proxy with these functions.
func proxyPlugins(t testing.TB, with pluginProxy) {
	t.Helper()
	var made atomic.Int32
	proxyRegistrations(t, func(ctx context.Context, kubelet api.RegistrationClient, r *api.RegisterRequest) (*api.Empty, error) {
		server := grpc.NewServer()
		own := with
		own.plugin = api.NewDevicePluginClient(connect(t, filepath.Join(devicemanager.Dir, r.Endpoint)))
		api.RegisterDevicePluginServer(server, &own)
		socket := fmt.Sprintf("proxy-%d.sock", made.Add(1))
		listen(t, server, devicemanager.Dir+socket)
		return kubelet.Register(ctx, &api.RegisterRequest{Version: r.Version, ResourceName: r.ResourceName, Endpoint: socket})
	})
}

func (p *pluginProxy) GetDevicePluginOptions(ctx context.Context, e *api.Empty) (*api.DevicePluginOptions, error) {
	return p.plugin.GetDevicePluginOptions(ctx, e)
}

func (p *pluginProxy) ListAndWatch(e *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	from, err := p.plugin.ListAndWatch(stream.Context(), e)
	if err != nil {
		return err
	}
	for {
		list, err := from.Recv()
		if err != nil {
			return err
		}
		if p.onList != nil {
			p.onList(list)
		}
		if err := stream.Send(list); err != nil {
			return err
		}
	}
}

func (p *pluginProxy) GetPreferredAllocation(ctx context.Context, req *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return p.plugin.GetPreferredAllocation(ctx, req)
}

func (p *pluginProxy) Allocate(ctx context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	if p.onRequest != nil {
		p.onRequest()
	}
	resp, err := p.plugin.Allocate(ctx, req)
	if p.onResponse != nil {
		p.onResponse()
	}
	return resp, err
}
