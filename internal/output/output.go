// Package output plans files that containers and other programs read about listed devices: links, device
// information, features and health directories.
//
// An output compares what exists with what the listed devices need and returns a files.Plan. The caller
// collects the plans of all outputs, removes everything that is stale, makes everything that is missing,
// and only then publishes the devices: see package files. Health directories keep their own plan.
package output

import "github.com/generic-dp/generic-dp/internal/device"

// Device is a listed device as outputs see it.
type Device struct {
	// Resource is the name of the resource as pods request it.
	Resource string
	// ByDRA is set if the device is offered by dynamic resource allocation.
	ByDRA bool
	Offer *device.Offer
	// Hardware is the hardware of the device, nil if it has none or is absent.
	Hardware *device.Hardware
	// Present is set if the device can be injected now.
	Present bool
	// Healthy is set if containers can get the device.
	Healthy bool
	// Works is set if the device is Healthy, or would be if it were not withheld for the
	// benefit of another resource.
	Works bool
	// Pending is set if nothing is wrong with the device so far, but its first health
	// checks have not ended.
	Pending bool
}
