package kubelettest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Request is a container's request for devices of one resource.
type Request struct {
	Namespace, Pod, Container string
	Resource                  string
	// Static: the pod is one of the kubelet's own manifests.
	Static bool
}

// Admission is the response to a request. The kubelet keeps it over restarts until the pod
// ends, and does not call Allocate again.
type Admission struct {
	IDs      []string
	Response *v1beta1.ContainerAllocateResponse
}

// Admit allocates n free and healthy devices to a container, by the plugin's preference. A
// request that was admitted before gets its former response, without a call.
func (k *Kubelet) Admit(ctx context.Context, c Request, n int) (*Admission, error) {
	k.mu.Lock()
	if a := k.admitted[c]; a != nil {
		k.mu.Unlock()
		return a, nil
	}
	k.freeRemoved()
	free, hasPreference, err := k.free(c.Resource)
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if len(free) < n {
		return nil, fmt.Errorf("not enough devices of %q: %d requested, %d available", c.Resource, n, len(free))
	}
	ids := free
	if hasPreference {
		preferred, err := k.Prefer(ctx, c.Resource, free, nil, n)
		if err != nil {
			return nil, err
		}
		ids = slices.DeleteFunc(preferred, func(id string) bool {
			return !slices.Contains(free, id)
		})
		for _, id := range free {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	ids = ids[:n]
	k.update(func() {
		k.admitting = c
	})
	defer k.update(func() {
		k.admitting = Request{}
	})
	resp, err := k.Allocate(ctx, c.Resource, ids...)
	if err != nil {
		return nil, err
	}
	if len(resp.GetContainerResponses()) == 0 {
		return nil, fmt.Errorf("%q: the response to Allocate has no container", c.Resource)
	}
	a := &Admission{IDs: ids, Response: resp.GetContainerResponses()[0]}
	k.update(func() {
		k.record(c, a)
	})
	return a, nil
}

// Hold assigns devices to a container without a call, like a checkpoint.
func (k *Kubelet) Hold(c Request, ids ...string) {
	k.HoldAll(map[Request][]string{c: ids})
}

// HoldAll assigns devices to many containers at once.
func (k *Kubelet) HoldAll(held map[Request][]string) {
	k.update(func() {
		k.freeRemoved()
		for c, ids := range held {
			k.identify(c)
			k.admitted[c] = &Admission{IDs: ids, Response: &v1beta1.ContainerAllocateResponse{}}
		}
		k.writeCheckpoint()
	})
}

// record records an admission; k.mu is locked.
func (k *Kubelet) record(c Request, a *Admission) {
	k.freeRemoved()
	k.identify(c)
	k.admitted[c] = a
	k.writeCheckpoint()
}

// Remove ends a pod and frees its devices, as does the deletion of a pod with --force, whose
// containers may still run. No plugin is notified, and the checkpoint stays until it is
// written for another reason. Claims of the pod stay prepared, but are no longer listed.
func (k *Kubelet) Remove(namespace, name string) {
	k.update(func() {
		for c := range k.admitted {
			if c.Namespace == namespace && c.Pod == name {
				k.removed = append(k.removed, k.entry(c))
				delete(k.admitted, c)
			}
		}
		delete(k.uids, pod{namespace, name})
		for _, c := range k.claims {
			if c.Namespace == namespace && c.Pod == name {
				c.forgotten = true
			}
		}
	})
}

// free returns the free healthy devices, sorted, and whether the plugin has
// preferences.
func (k *Kubelet) free(name string) (ids []string, hasPreference bool, err error) {
	r := k.resources[name]
	if r == nil {
		return nil, false, fmt.Errorf("%q was never registered", name)
	}
	healthy := r.healthy()
	if len(healthy) == 0 {
		return nil, false, fmt.Errorf("%q has no healthy devices", name)
	}
	if r.plugin == nil {
		return nil, false, fmt.Errorf("%q: its plugin is gone", name)
	}
	for c, a := range k.admitted {
		if c.Resource == name {
			for _, id := range a.IDs {
				delete(healthy, id)
			}
		}
	}
	return slices.Sorted(maps.Keys(healthy)), r.plugin.options.GetGetPreferredAllocationAvailable(), nil
}

// Allocate calls the plugin's Allocate for one container, like the kubelet without a
// deadline. It records nothing.
func (k *Kubelet) Allocate(ctx context.Context, name string, ids ...string) (*v1beta1.AllocateResponse, error) {
	api, err := k.plugin(name)
	if err != nil {
		return nil, err
	}
	return api.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	})
}

// Prefer calls the plugin's GetPreferredAllocation for one container and returns its
// response unchanged.
func (k *Kubelet) Prefer(ctx context.Context, name string, available, must []string, size int) ([]string, error) {
	api, err := k.plugin(name)
	if err != nil {
		return nil, err
	}
	resp, err := api.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(size),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("%q: GetPreferredAllocation: %w", name, err)
	}
	if len(resp.GetContainerResponses()) == 0 {
		return nil, nil
	}
	return resp.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// plugin returns the plugin of a resource.
func (k *Kubelet) plugin(name string) (v1beta1.DevicePluginClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resources[name]
	if r == nil {
		return nil, fmt.Errorf("%q was never registered", name)
	}
	if r.plugin == nil {
		return nil, fmt.Errorf("%q: its plugin is gone", name)
	}
	return r.plugin.api, nil
}

// List implements PodResources: every request with its devices, each as a pod of its own.
func (p *process) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeRemoved()
	resp := &podresourcesv1.ListPodResourcesResponse{}
	for _, c := range slices.SortedFunc(maps.Keys(p.admitted), compareRequests) {
		container := &podresourcesv1.ContainerResources{Name: c.Container, Devices: containerDevices(c.Resource, p.admitted[c].IDs)}
		resp.PodResources = append(resp.PodResources, podOf(c.Namespace, c.Pod, container))
	}
	if c := p.admitting; c.Pod != "" { // the pod manager has it before admission
		resp.PodResources = append(resp.PodResources, podOf(
			c.Namespace,
			c.Pod,
			&podresourcesv1.ContainerResources{Name: c.Container},
		))
	}
	resp.PodResources = append(resp.PodResources, p.dynamicResources()...)
	return resp, p.podsErr
}

// containerDevices returns one entry. The kubelet has one for each NUMA node.
func containerDevices(name string, ids []string) []*podresourcesv1.ContainerDevices {
	return []*podresourcesv1.ContainerDevices{{ResourceName: name, DeviceIds: ids}}
}

func podOf(namespace, name string, c *podresourcesv1.ContainerResources) *podresourcesv1.PodResources {
	return &podresourcesv1.PodResources{Namespace: namespace, Name: name, Containers: []*podresourcesv1.ContainerResources{c}}
}

// GetAllocatableResources lists the healthy devices of every resource.
func (p *process) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &podresourcesv1.AllocatableResourcesResponse{}
	for _, name := range slices.Sorted(maps.Keys(p.resources)) {
		resp.Devices = append(resp.Devices, containerDevices(name, slices.Sorted(maps.Keys(p.resources[name].healthy())))...)
	}
	return resp, p.podsErr
}

func compareRequests(a, b Request) int {
	return slices.Compare(
		[]string{a.Namespace, a.Pod, a.Container, a.Resource},
		[]string{b.Namespace, b.Pod, b.Container, b.Resource})
}
