package sample

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	claims "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a minimal DRA driver beside the program under test. It prepares every claim and
// injects nothing. Its ResourceSlices are written by the test.
type Driver struct {
	// Name is the name of the driver.
	Name string

	claims.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer

	mu       sync.Mutex
	fails    error    // of NodePrepareResources
	prepared []string // UIDs of claims
}

// Start serves the driver in the kubelet's directory of plugins, where the kubelet finds it.
func (d *Driver) Start(t testing.TB, registry string) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(registry, d.Name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	claims.RegisterDRAPluginServer(server, d)
	registration.RegisterRegistrationServer(server, d)
	go func() {
		_ = server.Serve(listener)
	}()
	t.Cleanup(server.Stop)
}

// Fail lets the preparation of claims fail, unless err is nil.
func (d *Driver) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = err
}

// Prepared returns the UIDs of the prepared claims, sorted.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.prepared))
}

// GetInfo describes the driver. Without an endpoint, the kubelet uses the same socket.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.DRAPlugin,
		Name:              d.Name,
		SupportedVersions: []string{claims.DRAPluginService},
	}, nil
}

// NotifyRegistrationStatus ignores the kubelet's decision: a test waits for a pod instead.
func (d *Driver) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// NodePrepareResources prepares all claims, or none.
func (d *Driver) NodePrepareResources(_ context.Context, req *claims.NodePrepareResourcesRequest) (*claims.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &claims.NodePrepareResourcesResponse{Claims: map[string]*claims.NodePrepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		answer := &claims.NodePrepareResourceResponse{}
		if d.fails != nil {
			answer.Error = d.fails.Error()
		} else if !slices.Contains(d.prepared, c.GetUid()) {
			d.prepared = append(d.prepared, c.GetUid())
		}
		resp.Claims[c.GetUid()] = answer
	}
	return resp, nil
}

// NodeUnprepareResources forgets claims.
func (d *Driver) NodeUnprepareResources(_ context.Context, req *claims.NodeUnprepareResourcesRequest) (*claims.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resp := &claims.NodeUnprepareResourcesResponse{Claims: map[string]*claims.NodeUnprepareResourceResponse{}}
	for _, c := range req.GetClaims() {
		d.prepared = slices.DeleteFunc(d.prepared, func(uid string) bool { return uid == c.GetUid() })
		resp.Claims[c.GetUid()] = &claims.NodeUnprepareResourceResponse{}
	}
	return resp, nil
}
