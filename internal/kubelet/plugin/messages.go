package plugin

import (
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/device"
)

// pluginOptions are the same for every resource. PreStartContainer would keep
// containers from restarting while this program is down.
func pluginOptions() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// truncate returns the longest prefix of list that the kubelet accepts. The ledger keeps lists
// within that limit, so that healthy devices are not cut for absent ones.
func truncate(list []device.Listed) []device.Listed {
	size := 0
	for i := range list {
		size += device.ListedSize(list[i].ID, list[i].NUMA)
		if size > device.MaxList {
			return list[:i]
		}
	}
	return list
}

func health(healthy bool) string {
	if healthy {
		return v1beta1.Healthy
	}
	return v1beta1.Unhealthy
}

// listResponse is list in the kubelet's API.
func listResponse(list []device.Listed) *v1beta1.ListAndWatchResponse {
	devices := make([]v1beta1.Device, len(list))
	resp := &v1beta1.ListAndWatchResponse{Devices: make([]*v1beta1.Device, len(list))}
	for i := range list {
		d := &devices[i]
		d.ID, d.Health, d.Topology = list[i].ID, health(list[i].Healthy), topology(list[i].NUMA)
		resp.Devices[i] = d
	}
	return resp
}

// topology is nil if no NUMA node is known: "no preference". A missing node, such as
// -1, would be a hint that cannot be satisfied.
func topology(nodes []int) *v1beta1.TopologyInfo {
	var t *v1beta1.TopologyInfo
	for _, id := range nodes {
		if id < 0 {
			continue
		}
		if t == nil {
			t = &v1beta1.TopologyInfo{}
		}
		t.Nodes = append(t.Nodes, &v1beta1.NUMANode{ID: int64(id)})
	}
	return t
}

// containerResponse is a response in the kubelet's API.
func containerResponse(r device.Response) *v1beta1.ContainerAllocateResponse {
	resp := &v1beta1.ContainerAllocateResponse{Envs: r.Env, Annotations: r.Annotations}
	for _, n := range r.Nodes {
		resp.Devices = append(resp.Devices, &v1beta1.DeviceSpec{
			ContainerPath: n.ContainerPath, HostPath: n.HostPath, Permissions: n.Permissions,
		})
	}
	for _, m := range r.Mounts {
		resp.Mounts = append(resp.Mounts, &v1beta1.Mount{
			ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly,
		})
	}
	for _, name := range r.CDI {
		resp.CdiDevices = append(resp.CdiDevices, &v1beta1.CDIDevice{Name: name})
	}
	return resp
}
