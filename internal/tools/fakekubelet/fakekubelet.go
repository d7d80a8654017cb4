// Package fakekubelet is the kubelet of the command try: it accepts registrations, follows lists
// and calls Allocate, over real sockets. It has no pods and never frees a device. Tests use package
// kubelettest instead, which can fail and restart like a real kubelet.
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

// Kubelet is a minimal kubelet. Its methods may be called concurrently. Register and List are
// called by gRPC, and the others by the command.
type Kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	podresourcesv1.UnimplementedPodResourcesListerServer
	// dir is the device plugin directory.
	dir    string
	server *grpc.Server
	// running counts the goroutines of the server and of the streams.
	running sync.WaitGroup

	// mu guards the fields below.
	mu sync.Mutex
	// changed is closed and replaced at each registration and list.
	changed chan struct{}
	// resources are the registered resources by name.
	resources map[string]resource
}

// resource is a registered plugin and its latest list.
type resource struct {
	plugin *grpc.ClientConn
	// list is nil before the first list. A list is replaced as a whole, and never changed.
	list *v1beta1.ListAndWatchResponse
}

// Response is the response to Allocate for one container.
type Response = v1beta1.ContainerAllocateResponse

// Start creates the device plugin directory dir and serves registration in it, and PodResources
// without pods on the socket at podResources. It fails if the directory cannot be created, or if a
// socket exists. The caller must call Stop.
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
	// One server has both services. A real kubelet has a server for each, which no client can
	// notice.
	sockets := []string{
		filepath.Join(dir, "kubelet.sock"),
		podResources,
	}
	for _, path := range sockets {
		// The socket exists when Start returns, so that an agent that starts next finds it.
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

// Stop disconnects every plugin, and waits for the goroutines of the server and of the streams.
func (k *Kubelet) Stop() {
	k.server.Stop()
	k.mu.Lock()
	for _, r := range k.resources {
		_ = r.plugin.Close()
	}
	k.mu.Unlock()
	// The goroutines of the streams take the lock to store a last list, so that it must be free
	// here.
	k.running.Wait()
}

// Register implements the registration service. It connects to a plugin and returns. A goroutine
// then follows the plugin's list until the stream ends. A second registration replaces the first
// one.
func (k *Kubelet) Register(_ context.Context, req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	target := "unix:" + filepath.Join(k.dir, req.GetEndpoint())
	insecurely := grpc.WithTransportCredentials(insecure.NewCredentials())
	// NewClient does not connect yet: the first call does.
	conn, err := grpc.NewClient(target, insecurely)
	if err != nil {
		return nil, err
	}
	name := req.GetResourceName()
	// The new registration has no list, even if an earlier one had.
	k.set(name, resource{plugin: conn})
	// A kubelet answers first and then calls the plugin, which may only serve after the answer.
	k.running.Go(func() {
		defer conn.Close()
		k.follow(name, conn)
	})
	return &v1beta1.Empty{}, nil
}

// follow stores each list of a plugin until the stream ends. The last list stays, unlike in a real
// kubelet, which marks the devices of a plugin that has disconnected as unhealthy.
func (k *Kubelet) follow(name string, conn *grpc.ClientConn) {
	plugin := v1beta1.NewDevicePluginClient(conn)
	// Stop ends the stream by closing the connection.
	stream, err := plugin.ListAndWatch(context.Background(), &v1beta1.Empty{})
	if err != nil {
		return
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return
		}
		k.set(name, resource{plugin: conn, list: list})
	}
}

// List implements PodResources: no pod holds a device.
func (k *Kubelet) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return &podresourcesv1.ListPodResourcesResponse{}, nil
}

// set stores the state of a resource and wakes everyone who waits for a change.
func (k *Kubelet) set(name string, r resource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resources[name] = r
	close(k.changed)
	k.changed = make(chan struct{})
}

// get returns the state of a resource. It returns the zero resource for an unknown name.
func (k *Kubelet) get(name string) resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resources[name]
}

// Changed returns a channel that is closed at the next registration or list. To miss no change,
// call it before looking at the devices.
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

// Allocate allocates size of these devices by the plugin's preference, as a kubelet does. It
// returns the IDs of the allocated devices and the response. The resource must be registered, and
// devices, which Allocate sorts, must have at least size elements. The devices are not remembered
// as allocated.
func (k *Kubelet) Allocate(ctx context.Context, name string, devices []string, size int) ([]string, *Response, error) {
	// Sorted devices give the same result for the same list.
	slices.Sort(devices)
	plugin := v1beta1.NewDevicePluginClient(k.get(name).plugin)
	ids, err := preferred(ctx, plugin, devices, size)
	if err != nil {
		return nil, nil, err
	}
	answer, err := plugin.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{
			{DevicesIds: ids},
		},
	})
	if err != nil {
		return ids, nil, err
	}
	responses := answer.GetContainerResponses()
	if len(responses) != 1 {
		return ids, nil, fmt.Errorf("the response to Allocate is for %d containers, want 1", len(responses))
	}
	return ids, responses[0], nil
}

// preferred returns the devices that the plugin prefers, or the first ones if it has no preference.
func preferred(ctx context.Context, plugin v1beta1.DevicePluginClient, devices []string, size int) ([]string, error) {
	request := &v1beta1.ContainerPreferredAllocationRequest{
		AvailableDeviceIDs: devices,
		AllocationSize:     int32(size),
	}
	answer, err := plugin.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{request},
	})
	if err != nil {
		return nil, fmt.Errorf("GetPreferredAllocation: %w", err)
	}
	responses := answer.GetContainerResponses()
	// A plugin may have no preference. A preference of the wrong size cannot be allocated.
	if len(responses) != 1 || len(responses[0].GetDeviceIDs()) != size {
		return devices[:size], nil
	}
	return responses[0].GetDeviceIDs(), nil
}
