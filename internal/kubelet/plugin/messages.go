package plugin

import (
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/device"
)

// pluginOptions are the options of a resource. PreStartContainer is not required: otherwise,
// containers could not restart while this program is down.
func pluginOptions() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// listResponse is list in the kubelet's API.
func listResponse(list []device.Listed) *v1beta1.ListAndWatchResponse {
	devices := make([]v1beta1.Device, len(list)) // one allocation for all
	pointers := make([]*v1beta1.Device, len(list))
	for i, listed := range list {
		d := &devices[i]
		d.ID = listed.ID
		d.Health = v1beta1.Unhealthy
		if listed.Healthy {
			d.Health = v1beta1.Healthy
		}
		d.Topology = topology(listed.NUMA)
		pointers[i] = d
	}
	return &v1beta1.ListAndWatchResponse{Devices: pointers}
}

// topology is nil if no NUMA node is known: "no preference". A missing node, such as
// -1, would be a hint that cannot be satisfied: offers have none.
func topology(nodes []int) *v1beta1.TopologyInfo {
	if len(nodes) == 0 {
		return nil
	}
	t := &v1beta1.TopologyInfo{}
	for _, id := range nodes {
		t.Nodes = append(t.Nodes, &v1beta1.NUMANode{ID: int64(id)})
	}
	return t
}

// ContainerResponse is a response for a container in the kubelet's API.
func ContainerResponse(r device.Response) *v1beta1.ContainerAllocateResponse {
	resp := &v1beta1.ContainerAllocateResponse{
		Envs:        r.Env,
		Annotations: r.Annotations,
	}
	for _, n := range r.Nodes {
		resp.Devices = append(resp.Devices, &v1beta1.DeviceSpec{
			ContainerPath: n.ContainerPath,
			HostPath:      n.HostPath,
			Permissions:   n.Permissions,
		})
	}
	for _, m := range r.Mounts {
		resp.Mounts = append(resp.Mounts, &v1beta1.Mount{
			ContainerPath: m.ContainerPath,
			HostPath:      m.HostPath,
			ReadOnly:      m.ReadOnly,
		})
	}
	for _, name := range r.CDI {
		device := &v1beta1.CDIDevice{Name: name}
		resp.CdiDevices = append(resp.CdiDevices, device)
	}
	return resp
}
