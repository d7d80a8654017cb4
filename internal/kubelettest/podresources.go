package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// podServer answers the PodResources API from the pods admitted here.
type podServer struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	*Kubelet
}

// listenPods makes the PodResources server and its socket.
func (p *process) listenPods() (net.Listener, error) {
	path := p.opts.PodResources
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := listen(path, nil)
	if err != nil {
		return nil, err
	}
	p.pods = grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(p.pods, &podServer{Kubelet: p.Kubelet})
	return l, nil
}

// RefusePods makes every PodResources call fail with err; nil ends that.
func (k *Kubelet) RefusePods(err error) {
	k.update(func() { k.faults.refusePods = err })
}

// List lists every admitted pod with its devices.
func (s *podServer) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faults.refusePods; err != nil {
		return nil, err
	}
	return &podresourcesv1.ListPodResourcesResponse{PodResources: s.podResources(func(Claim) bool { return true })}, nil
}

// Get is List for one pod.
func (s *podServer) Get(_ context.Context, req *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faults.refusePods; err != nil {
		return nil, err
	}
	pods := s.podResources(func(c Claim) bool {
		return c.Namespace == req.GetPodNamespace() && c.Pod == req.GetPodName()
	})
	if len(pods) == 0 {
		return nil, fmt.Errorf("pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: pods[0]}, nil
}

// GetAllocatableResources lists the healthy devices of every resource.
func (s *podServer) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faults.refusePods; err != nil {
		return nil, err
	}
	resp := &podresourcesv1.AllocatableResourcesResponse{}
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		resp.Devices = append(resp.Devices, s.containerDevices(name, slices.Sorted(maps.Keys(s.resources[name].healthy())))...)
	}
	return resp, nil
}

// podResources is what the wanted claims hold, by pod and container.
func (k *Kubelet) podResources(want func(Claim) bool) []*podresourcesv1.PodResources {
	var pods []*podresourcesv1.PodResources
	for _, c := range slices.SortedFunc(maps.Keys(k.admitted), compareClaims) {
		if !want(c) {
			continue
		}
		var pod *podresourcesv1.PodResources
		if n := len(pods); n > 0 && pods[n-1].Name == c.Pod && pods[n-1].Namespace == c.Namespace {
			pod = pods[n-1]
		} else {
			pod = &podresourcesv1.PodResources{Namespace: c.Namespace, Name: c.Pod}
			pods = append(pods, pod)
		}
		var container *podresourcesv1.ContainerResources
		if n := len(pod.Containers); n > 0 && pod.Containers[n-1].Name == c.Container {
			container = pod.Containers[n-1]
		} else {
			container = &podresourcesv1.ContainerResources{Name: c.Container}
			pod.Containers = append(pod.Containers, container)
		}
		container.Devices = append(container.Devices, k.containerDevices(c.Resource, k.admitted[c].IDs)...)
	}
	return pods
}

// containerDevices has an entry for each device and each of its NUMA nodes, as
// the kubelet does it.
func (k *Kubelet) containerDevices(name string, ids []string) []*podresourcesv1.ContainerDevices {
	var devices []*podresourcesv1.ContainerDevices
	for _, id := range ids {
		entry := func(topology *podresourcesv1.TopologyInfo) {
			devices = append(devices, &podresourcesv1.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: topology})
		}
		nodes := k.resources[name].numa(id)
		if len(nodes) == 0 {
			entry(nil)
		}
		for _, node := range nodes {
			entry(&podresourcesv1.TopologyInfo{Nodes: []*podresourcesv1.NUMANode{{ID: node}}})
		}
	}
	return devices
}

func compareClaims(a, b Claim) int {
	return slices.Compare(
		[]string{a.Namespace, a.Pod, a.Container, a.Resource},
		[]string{b.Namespace, b.Pod, b.Container, b.Resource})
}
