package dra

import (
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/cdi"
)

// addTo adds the result of an allocation to a request: as a slot of the device, or as access beside
// its holders, which takes no slot. A network interface cannot be beside its holder: it is in one
// network namespace (network_namespaces(7)).
func (a *allocated) addTo(request *cdi.Request, d *Device) error {
	if !a.AdminAccess {
		// A device is in the list once for each of its slots that the request has.
		request.Devices = append(request.Devices, d.key())
		slices.Sort(request.Devices)
		request.Shares = append(request.Shares, d.shares(a)...)
		return nil
	}
	if d.Moves {
		return fmt.Errorf("request %s: adminAccess to device %q would move its network interface away from its holder", a.Request, a.Device)
	}
	request.Admin = append(request.Admin, d.key())
	slices.Sort(request.Admin)
	return nil
}
