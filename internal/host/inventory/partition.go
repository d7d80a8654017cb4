package inventory

import (
	"errors"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The first compute partition of an AMD GPU has the nodes of the PCI function. The driver makes a
// platform device for each further partition that the GPU may have, and never removes it
// (amdgpu_xcp_dev_alloc in drivers/gpu/drm/amd/amdgpu/amdgpu_xcp.c and amdgpu_xcp_drm_dev_alloc in
// drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c). Only KFD knows which of them are in use, and of
// which GPU they are a part.
const partitionPrefix = "amdgpu_xcp_"

var errPartitions = errors.New("the GPU of AMD's partitions is unknown, so they are left out of matches with pci: " +
	"the kernel shows it only to processes that may use the GPU, such as those of a privileged container")

// partitions returns the PCI functions of GPUs by the platform devices of their partitions, without
// the partitions that are not in use.
func (c *scan) partitions() map[*device.Hardware]*device.Hardware {
	minors := make(map[uint32]*device.Hardware)
	functions := make(map[string]*device.Hardware)
	for _, h := range c.list {
		if h.PCI != nil && h.PCI.Driver == "amdgpu" {
			functions[h.Name] = h
		}
		if h.Bus != device.PlatformBus || !strings.HasPrefix(h.Name, partitionPrefix) {
			continue
		}
		for _, n := range h.Nodes {
			if strings.HasPrefix(n.Kernel, "renderD") {
				minors[n.Minor] = h
			}
		}
	}
	// Most hosts have no such GPU, and need not read the topology.
	if len(minors) == 0 {
		return nil
	}
	// KFD announces no change of partitions, so that every scan reads its nodes.
	nodes, unreadable, err := c.sysfs.KFDNodes()
	const subject = "class/kfd/kfd/topology"
	c.problems.add(subject, err)
	if unreadable > len(functions) {
		c.problems.add(subject, errPartitions)
	}
	gpus := make(map[*device.Hardware]*device.Hardware)
	for _, n := range nodes {
		partition := minors[n.RenderMinor]
		gpu := functions[n.Function]
		if partition != nil && gpu != nil {
			gpus[partition] = gpu
		}
	}
	return gpus
}
