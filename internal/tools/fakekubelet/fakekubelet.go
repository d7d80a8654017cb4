// Package fakekubelet is the fake kubelet of `try`: it accepts registrations, follows lists and
// calls Allocate, over real sockets. The fake kubelet of tests is package kubelettest.
package fakekubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet is a minimal kubelet.
type Kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	podresourcesv1.UnimplementedPodResourcesListerServer
	dir     string
	server  *grpc.Server
	running sync.WaitGroup // the server and the streams

	mu        sync.Mutex
	changed   chan struct{}
	resources map[string]resource
}

// resource is a plugin and its latest list.
type resource struct {
	plugin *grpc.ClientConn
	list   *v1beta1.ListAndWatchResponse // nil before the first list
}

// Response is the response to Allocate for one container.
type Response = v1beta1.ContainerAllocateResponse

// Start creates the device plugin directory dir and serves registration in it, and
// PodResources without pods on the socket at podResources.
func Start(dir, podResources string) (*Kubelet, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	k := &Kubelet{
		dir:       dir,
		server:    grpc.NewServer(),
		changed:   make(chan struct{}),
		resources: map[string]resource{},
	}
	v1beta1.RegisterRegistrationServer(k.server, k)
	podresourcesv1.RegisterPodResourcesListerServer(k.server, k)
	for _, path := range []string{filepath.Join(dir, "kubelet.sock"), podResources} {
		listener, err := net.Listen("unix", path)
		if err != nil {
			k.Stop()
			return nil, err
		}
		k.running.Go(func() {
			_ = k.server.Serve(listener)
		})
	}
	return k, nil
}

// Stop disconnects every plugin.
func (k *Kubelet) Stop() {
	k.server.Stop()
	k.mu.Lock()
	for _, r := range k.resources {
		_ = r.plugin.Close()
	}
	k.mu.Unlock()
	k.running.Wait()
}

// Register connects to a plugin and follows its list until the stream ends.
func (k *Kubelet) Register(_ context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, req.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	k.set(req.GetResourceName(), resource{plugin: conn})
	k.running.Go(func() {
		defer conn.Close()
		stream, err := v1beta1.NewDevicePluginClient(conn).ListAndWatch(context.Background(), &v1beta1.Empty{})
		for err == nil {
			var list *v1beta1.ListAndWatchResponse
			if list, err = stream.Recv(); err == nil {
				k.set(req.GetResourceName(), resource{conn, list})
			}
		}
	})
	return &v1beta1.Empty{}, nil
}

// List implements PodResources.
func (k *Kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return &podresourcesv1.ListPodResourcesResponse{}, nil
}

func (k *Kubelet) set(name string, r resource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resources[name] = r
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *Kubelet) get(name string) resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resources[name]
}

// Changed returns a channel that is closed at the next registration or list.
func (k *Kubelet) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// Devices returns the IDs of a resource's healthy devices, the number of listed devices, and
// whether a list was received.
func (k *Kubelet) Devices(name string) (healthy []string, listed int, known bool) {
	list := k.get(name).list
	for _, d := range list.GetDevices() {
		if d.GetHealth() == v1beta1.Healthy {
			healthy = append(healthy, d.GetID())
		}
	}
	return healthy, len(list.GetDevices()), list != nil
}

// Allocate allocates size of these devices by the plugin's preference, as a kubelet does, and
// returns them and the response.
func (k *Kubelet) Allocate(ctx context.Context, name string, devices []string, size int) ([]string, *Response, error) {
	slices.Sort(devices)
	plugin := v1beta1.NewDevicePluginClient(k.get(name).plugin)
	preferred, err := plugin.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: devices, AllocationSize: int32(size)}},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("GetPreferredAllocation: %w", err)
	}
	ids := devices[:size]
	if c := preferred.GetContainerResponses(); len(c) == 1 && len(c[0].GetDeviceIDs()) == size {
		ids = c[0].GetDeviceIDs()
	}
	resp, err := plugin.Allocate(ctx, &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return ids, nil, err
	}
	if len(resp.GetContainerResponses()) != 1 {
		return ids, nil, fmt.Errorf("the response to Allocate is for %d containers, want 1", len(resp.GetContainerResponses()))
	}
	return ids, resp.GetContainerResponses()[0], nil
}
