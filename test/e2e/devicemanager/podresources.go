package devicemanager

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// PodResources is the socket of the kubelet's PodResources API.
const PodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// servePodResources serves the PodResources API like the kubelet, including its rate
// limit.
func servePodResources(t testing.TB, m *Manager) *grpc.Server {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(PodResources), 0o750); err != nil {
		t.Fatal(err)
	}
	// A kubelet leaves its socket, which the next one replaces.
	if err := os.Remove(PodResources); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: PodResources, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	ctx := context.Background()
	server := grpc.NewServer(apisgrpc.WithRateLimiter(ctx, "podresources", podresources.DefaultQPS, podresources.DefaultBurstTokens))
	p := providers{m: m, ManagerImpl: m.dm}
	api.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(ctx, podresources.PodResourcesProviders{
		Pods: p, Devices: p, Cpus: p, Memory: p, DynamicResources: p,
	}))
	go func() { _ = server.Serve(listener) }()
	return server
}

// providers serves the PodResources API from a manager. There are no exclusive CPUs, no
// pinned memory and no claims.
type providers struct {
	m *Manager
	*devicemanager.ManagerImpl
}

func (p providers) GetActivePods() []*v1.Pod { return p.m.active() }
func (p providers) GetPods() []*v1.Pod       { return p.m.active() }

func (p providers) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range p.m.active() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (p providers) GetDevices(podUID, container string) []*api.ContainerDevices {
	return containerDevices(p.ManagerImpl.GetDevices(podUID, container))
}

func (p providers) GetAllocatableDevices() []*api.ContainerDevices {
	return containerDevices(p.ManagerImpl.GetAllocatableDevices())
}

func (providers) GetCPUs(string, string) []int64                                    { return nil }
func (providers) GetAllocatableCPUs() []int64                                       { return nil }
func (providers) GetMemory(_, _ string) []*api.ContainerMemory                      { return nil }
func (providers) GetAllocatableMemory() []*api.ContainerMemory                      { return nil }
func (providers) GetDynamicResources(*v1.Pod, *v1.Container) []*api.DynamicResource { return nil }

// containerDevices lists devices like the kubelet: an entry for each device without
// NUMA nodes, or for each NUMA node of a device.
func containerDevices(byResource devicemanager.ResourceDeviceInstances) []*api.ContainerDevices {
	var list []*api.ContainerDevices
	for name, devices := range byResource {
		for id, device := range devices {
			if device.GetTopology() == nil {
				list = append(list, &api.ContainerDevices{ResourceName: name, DeviceIds: []string{id}})
			}
			for _, node := range device.GetTopology().GetNodes() {
				list = append(list, &api.ContainerDevices{
					ResourceName: name,
					DeviceIds:    []string{id},
					Topology:     &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: node.ID}}},
				})
			}
		}
	}
	return list
}
