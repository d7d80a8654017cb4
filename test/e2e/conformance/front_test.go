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

// front replaces the kubelet's socket, so that a test controls registrations. It
// forwards what it passes to the kubelet.
type front struct {
	api.UnimplementedRegistrationServer
	kubelet  api.RegistrationClient
	register func(context.Context, *api.RegisterRequest) error
}

func (f *front) Register(ctx context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	return &api.Empty{}, f.register(ctx, r)
}

// pass forwards a registration to the kubelet.
func (f *front) pass(ctx context.Context, r *api.RegisterRequest) error {
	_, err := f.kubelet.Register(ctx, r)
	return err
}

// newFront puts a front before the running kubelet. It ends with the test, or when the
// kubelet restarts and removes all sockets.
func newFront(t testing.TB, register func(*front, context.Context, *api.RegisterRequest) error) {
	t.Helper()
	const behind = devicemanager.Dir + "behind.sock"
	if err := os.Rename(kubeletSocket, behind); err != nil {
		t.Fatal(err)
	}
	f := &front{kubelet: api.NewRegistrationClient(connect(t, behind))}
	f.register = func(ctx context.Context, r *api.RegisterRequest) error { return register(f, ctx, r) }
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, f)
	listen(t, server, kubeletSocket)
}

// connect returns a client of a socket.
func connect(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// listen serves on a socket, which it leaves behind like a kubelet.
func listen(t testing.TB, server *grpc.Server, socket string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// relay is a proxy between the kubelet and the program's server.
type relay struct {
	api.UnimplementedDevicePluginServer
	plugin api.DevicePluginClient
	// listed is called with each list before the kubelet gets it.
	listed func(*api.ListAndWatchResponse)
	// asked is called before Allocate reaches the program, answered before the response
	// reaches the kubelet.
	asked, answered func()
}

// gate stops an Allocate call once, at asked or answered of a relay.
type gate struct{ reached, pass chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

func (g gate) stop() {
	close(g.reached)
	<-g.pass
}

// newRelay routes every registration through a relay.
func newRelay(t testing.TB, line relay) {
	t.Helper()
	var made atomic.Int32
	newFront(t, func(f *front, ctx context.Context, r *api.RegisterRequest) error {
		server := grpc.NewServer()
		own := line
		own.plugin = api.NewDevicePluginClient(connect(t, filepath.Join(devicemanager.Dir, r.Endpoint)))
		api.RegisterDevicePluginServer(server, &own)
		socket := fmt.Sprintf("relay-%d.sock", made.Add(1))
		listen(t, server, devicemanager.Dir+socket)
		return f.pass(ctx, &api.RegisterRequest{Version: r.Version, ResourceName: r.ResourceName, Endpoint: socket})
	})
}

func (r *relay) GetDevicePluginOptions(ctx context.Context, e *api.Empty) (*api.DevicePluginOptions, error) {
	return r.plugin.GetDevicePluginOptions(ctx, e)
}

func (r *relay) ListAndWatch(e *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	from, err := r.plugin.ListAndWatch(stream.Context(), e)
	if err != nil {
		return err
	}
	for {
		list, err := from.Recv()
		if err != nil {
			return err
		}
		if r.listed != nil {
			r.listed(list)
		}
		if err := stream.Send(list); err != nil {
			return err
		}
	}
}

func (r *relay) GetPreferredAllocation(ctx context.Context, req *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return r.plugin.GetPreferredAllocation(ctx, req)
}

func (r *relay) Allocate(ctx context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	if r.asked != nil {
		r.asked()
	}
	resp, err := r.plugin.Allocate(ctx, req)
	if r.answered != nil {
		r.answered()
	}
	return resp, err
}
