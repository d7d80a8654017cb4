package inventory

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
	gpus := make(map[*device.Hardware]*device.Hardware)
	unreadable := 0
	for _, name := range c.kfdNodes() {
		properties, err := c.sysfs.Text(kfdNodes+"/"+name, "properties")
		if errors.Is(err, unix.EPERM) {
			unreadable++
			continue
		}
		// The driver replaces its nodes when partitions change.
		c.problems.add(kfdNodes+"/"+name, err)
		minor, function := parseKFDNode(properties)
		partition := minors[minor]
		gpu := functions[function]
		if partition != nil && gpu != nil {
			gpus[partition] = gpu
		}
	}
	if unreadable > len(functions) {
		c.problems.add(kfdNodes, errPartitions)
	}
	return gpus
}

// kfdNodes is the directory of AMD's compute driver with one directory per node: a CPU, a GPU,
// or a partition of a GPU that is in use (kfd_build_sysfs_node_entry in
// drivers/gpu/drm/amd/amdkfd/kfd_topology.c). The kernel shows a GPU only to processes whose device cgroup permits
// its render node (node_show in the same file), so that containers without privileges can't read it.
const kfdNodes = "devices/virtual/kfd/kfd/topology/nodes"

// kfdNodes lists the nodes. A host without AMD's compute driver has none.
func (c *scan) kfdNodes() []string {
	names, err := c.sysfs.Names(kfdNodes)
	if !notExist(err) {
		c.problems.add(kfdNodes, err)
	}
	return names
}

// parseKFDNode parses the properties of a node, one "name value" per line. It returns the minor number of the DRM
// render node, which a CPU does not have, and the address of the PCI function of the GPU, "0000:05:00.0".
func parseKFDNode(properties string) (minor uint32, function string) {
	values := make(map[string]uint64)
	for line := range strings.Lines(properties) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.ParseUint(text, 10, 64)
		if err == nil {
			values[name] = value
		}
	}
	// The location is the number of the bus and of the device. The number of the function is
	// replaced by the number of the partition (kfd_topology_add_device in kfd_topology.c).
	location := values["location_id"]
	bus := location >> 8 & 0xff
	slot := location >> 3 & 0x1f
	function = fmt.Sprintf("%04x:%02x:%02x.0", values["domain"], bus, slot)
	return uint32(values["drm_render_minor"]), function
}
