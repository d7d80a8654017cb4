package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// isGroupNode reports whether a node is the node of an IOMMU group, with which matching selects
// nothing: it selects the functions of the group.
func isGroupNode(n *device.Node) bool {
	return n != nil && n.Hardware != nil && strings.HasPrefix(n.Path, "/dev/vfio/")
}

// addGroup explains the device of a whole IOMMU group: which device the explained hardware is a part of,
// or for no hardware, why there are fewer devices than functions.
func (e *explanation) addGroup(snap *device.Snapshot, o *device.Offer, found catalog.Found) {
	group := groupOf(snap, o)
	if len(group) < 2 {
		return
	}
	number := group[0].IOMMUGroup()
	isAbout := found != (catalog.Found{})
	if !isAbout && e.Reason == "" {
		e.Reason = fmt.Sprintf("IOMMU group %s with %s is one device", number, cli.Count(len(group), "function"))
	}
	isPart := found.Hardware != nil && slices.Contains(group, found.Hardware)
	// A match with a glob makes a device of each function.
	hasOwn := len(e.Offered) > 0 && !slices.Contains(e.Offered, o.ID)
	if isPart && !hasOwn && found.Hardware.Path != o.Hardware {
		e.Offered = []string{o.ID}
		e.Reason = fmt.Sprintf("as a part of %s: both are in IOMMU group %s", o.ID, number)
	}
}

// groupOf returns the functions that come with a device: all of its IOMMU group that a driver of
// VFIO has. It returns none for a device without the node of a group.
func groupOf(snap *device.Snapshot, o *device.Offer) []*device.Hardware {
	var group []*device.Hardware
	for _, h := range snap.Hardware {
		node := "/dev/vfio/" + h.IOMMUGroup()
		hasNode := slices.ContainsFunc(o.Nodes, func(n device.OfferedNode) bool {
			return n.HostPath == node
		})
		isBound := h.PCI != nil && h.PCI.VFIO
		if isBound && hasNode {
			group = append(group, h)
		}
	}
	return group
}
