package main

import (
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/matchers"
)

// busNodeNotes warns of resources that offer the raw node of USB devices while a kernel driver
// uses them, such as the host's own network adapter. It returns one note for each such resource,
// in the order of the configuration. Such a resource is valid, since programs with libusb need
// the raw node, but it often is the result of a glob that matches too much.
func busNodeNotes(view *agent.View) []config.Problem {
	hardware := make(map[string]*device.Hardware) // by path of the node
	for _, n := range view.Snapshot.Nodes {
		if n.Hardware != nil && catalog.IsBusNode(n.Path) {
			hardware[n.Path] = n.Hardware
		}
	}
	var notes []config.Problem
	for _, m := range view.Matched.Resources {
		used := usedByKernel(m, hardware)
		if len(used) == 0 {
			continue
		}
		first := used[0]
		devices := "USB device " + first.Name
		if len(used) > 1 {
			devices += fmt.Sprintf(" and %d more", len(used)-1)
		}
		notes = append(notes, config.Problem{
			Place: m.Resource.Place,
			// USBDEVFS_DISCONNECT detaches the driver (drivers/usb/core/devio.c). It only
			// requires that the node is open for writing.
			Text: fmt.Sprintf("offers the bus node of %s, which the kernel's driver %q uses: a container with it can take the device away from the host",
				devices, catalog.KernelDriver(first)),
			Hint: "glob selects the nodes of the driver instead, and exclude leaves the device out",
		})
	}
	return notes
}

// usedByKernel returns the hardware of devices that only have a bus node although a kernel driver
// uses them. A device with other nodes as well, such as a serial port, is meant for containers.
// hardware contains the hardware of all bus nodes by path.
func usedByKernel(m matchers.Offered, hardware map[string]*device.Hardware) []*device.Hardware {
	var used []*device.Hardware
	for _, o := range m.Offers {
		// A companion is in every container of the resource, so it says nothing about the device.
		isOther := func(n device.OfferedNode) bool {
			return !n.Companion && !catalog.IsBusNode(n.HostPath)
		}
		if slices.ContainsFunc(o.Nodes, isOther) {
			continue
		}
		for _, n := range o.Nodes {
			h := hardware[n.HostPath]
			if h != nil && catalog.KernelDriver(h) != "" {
				used = append(used, h)
			}
		}
	}
	return used
}
