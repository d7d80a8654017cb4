package sysfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kfdNodes is the directory of AMD's compute driver with one directory per node: a CPU, a GPU,
// or a partition of a GPU that is in use (kfd_build_sysfs_node_entry in
// drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
const kfdNodes = "devices/virtual/kfd/kfd/topology/nodes"

// KFDNode is an AMD GPU, or one of its partitions that are in use.
type KFDNode struct {
	// RenderMinor is the minor number of its DRM render node.
	RenderMinor uint32
	// Function is the address of the GPU's PCI function, "0000:05:00.0".
	Function string
}

// KFDNodes lists the AMD GPUs and their partitions in use.
//
// The kernel shows a GPU only to processes whose device cgroup permits its render node (node_show in
// kfd_topology.c). Containers without privileges therefore can't read it: unreadable is the number
// of these GPUs and partitions. A host without AMD's compute driver has none.
func (fs FS) KFDNodes() (nodes []KFDNode, unreadable int, err error) {
	names, err := fs.names(kfdNodes)
	if errors.Is(err, unix.ENOENT) {
		return nil, 0, nil
	}
	errs := []error{err}
	for _, name := range names {
		var buf [maxAttr]byte
		n, err := fs.read(kfdNodes+"/"+name, "properties", buf[:])
		if errors.Is(err, unix.EPERM) {
			unreadable++
			continue
		}
		if err != nil {
			// The driver replaces its nodes when partitions change.
			if !Gone(err) {
				errs = append(errs, fmt.Errorf("%s/properties: %w", name, err))
			}
			continue
		}
		node, isGPU := parseKFDNode(string(buf[:n]))
		if isGPU {
			nodes = append(nodes, node)
		}
	}
	return nodes, unreadable, errors.Join(errs...)
}

// parseKFDNode parses the properties of a node, one "name value" per line. A CPU has no render node.
func parseKFDNode(properties string) (node KFDNode, isGPU bool) {
	values := make(map[string]uint64)
	for line := range strings.Lines(properties) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.ParseUint(text, 10, 64)
		if err == nil {
			values[name] = value
		}
	}
	minor := values["drm_render_minor"]
	if minor == 0 {
		return KFDNode{}, false
	}
	// The location is the number of the bus and of the device. The number of the function is
	// replaced by the number of the partition (kfd_topology_add_device in kfd_topology.c).
	location := values["location_id"]
	bus := location >> 8 & 0xff
	device := location >> 3 & 0x1f
	return KFDNode{
		RenderMinor: uint32(minor),
		Function:    fmt.Sprintf("%04x:%02x:%02x.0", values["domain"], bus, device),
	}, true
}
