// Package sample is a minimal device plugin, to compete with the program under test.
package sample

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin serves one resource with a single device, which is healthy.
type Plugin struct {
	Resource string
	ID       string

	api.UnimplementedDevicePluginServer
}

// Start serves the plugin in a kubelet's device plugin directory and registers it once.
func (p *Plugin) Start(t testing.TB, dir string) {
	t.Helper()
	socket := filepath.Join(dir, "sample.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(socket) })
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
	_, err = api.NewRegistrationClient(conn).Register(t.Context(), &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     filepath.Base(socket),
		ResourceName: p.Resource,
	})
	if err != nil {
		t.Fatalf("register %s: %v", p.Resource, err)
	}
}

// GetDevicePluginOptions returns none.
func (p *Plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the device.
func (p *Plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	list := &api.ListAndWatchResponse{Devices: []*api.Device{{ID: p.ID, Health: api.Healthy}}}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}
