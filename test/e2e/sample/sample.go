// Package sample is a minimal device plugin. The beds check themselves with it, so that
// a failure shows whether the bed or the program under test is broken.
package sample

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerLimit covers the 10 seconds in which a kubelet tries to dial back, and more on
// a busy machine.
const registerLimit = time.Minute

// Plugin serves one resource. All its devices are healthy.
type Plugin struct {
	Resource string
	IDs      []string
	// Respond returns the response of a container for ids, in order.
	Respond func(ids []string) *api.ContainerAllocateResponse

	api.UnimplementedDevicePluginServer

	mu        sync.Mutex
	allocated [][]string
	again     chan struct{} // has the list sent again
}

// Start serves the plugin in a kubelet's device plugin directory and registers it once.
func (p *Plugin) Start(t testing.TB, dir string) {
	t.Helper()
	p.mu.Lock()
	p.again = make(chan struct{})
	p.mu.Unlock()
	// A unique name per server: the kubelet keeps connections by name.
	file, err := os.CreateTemp(dir, "sample-*.sock")
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	socket := file.Name()
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), registerLimit)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     filepath.Base(socket),
		ResourceName: p.Resource,
	})
	if err != nil {
		t.Fatalf("register %s: %v", p.Resource, err)
	}
}

// Allocated returns the device IDs of every Allocate so far.
func (p *Plugin) Allocated() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated)
}

// GetDevicePluginOptions returns none.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAgain sends the devices to the kubelet again.
func (p *Plugin) ListAgain(t testing.TB) {
	t.Helper()
	select {
	case p.repeats() <- struct{}{}:
	case <-time.After(registerLimit):
		t.Fatalf("%s: the kubelet does not follow the list", p.Resource)
	}
}

// repeats has a value when the latest server sends the devices again.
func (p *Plugin) repeats() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.again
}

// ListAndWatch sends the devices, and again for each call of ListAgain.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	again := p.repeats()
	list := &api.ListAndWatchResponse{}
	for _, id := range p.IDs {
		list.Devices = append(list.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	for {
		if err := stream.Send(list); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-again:
		}
	}
}

// Allocate calls Respond.
func (p *Plugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	resp := &api.AllocateResponse{}
	for _, c := range req.ContainerRequests {
		ids := slices.Sorted(slices.Values(c.DevicesIds))
		for _, id := range ids {
			if !slices.Contains(p.IDs, id) {
				return nil, fmt.Errorf("no device %q", id)
			}
		}
		p.mu.Lock()
		p.allocated = append(p.allocated, ids)
		p.mu.Unlock()
		resp.ContainerResponses = append(resp.ContainerResponses, p.Respond(ids))
	}
	return resp, nil
}
