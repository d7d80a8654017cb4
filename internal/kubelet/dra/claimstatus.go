package dra

import (
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// deviceStatus is an AllocatedDeviceStatus of resource.k8s.io/v1 (KEP-4817): what a driver reports
// about a device in the status of its claim. Pool, Device and ShareID identify the device there.
type deviceStatus struct {
	Driver      string       `json:"driver"`
	Pool        string       `json:"pool"`
	Device      string       `json:"device"`
	ShareID     *string      `json:"shareID,omitempty"`
	Conditions  []condition  `json:"conditions"`
	NetworkData *networkData `json:"networkData,omitempty"`
}

// condition is a Condition of meta/v1.
type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime"` // as in time.RFC3339, in UTC
}

// networkData describes the network interface of a device. The addresses of the interface are not
// known: it is in the network namespace of the pod.
type networkData struct {
	InterfaceName   string `json:"interfaceName,omitempty"`
	HardwareAddress string `json:"hardwareAddress,omitempty"`
}

// claimPatch has the fields of a ResourceClaim that the driver applies.
type claimPatch struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Status     claimPatchBody `json:"status"`
}

// claimPatchBody is the status in a claimPatch.
type claimPatchBody struct {
	Devices []deviceStatus `json:"devices"`
}

// ready is the condition of a device that its containers can use.
const ready = "Ready"

// maxReason is the maximum length of the message of a condition. The API allows 32 KiB.
const maxReason = 1024

// readiness is the state of one device, as claims report it.
type readiness struct {
	status  string // of the condition
	reason  string
	message string
	since   time.Time
	network device.Network
}

// readinessOf returns what claims report about a device. A nil device is not listed.
func readinessOf(d *Device) readiness {
	if d == nil {
		return readiness{
			status:  "Unknown",
			reason:  "NotListed",
			message: "the driver does not list the device",
		}
	}
	r := readiness{
		status:  "False",
		message: d.Reason,
		since:   d.Since,
		network: d.Network,
	}
	if len(r.message) > maxReason {
		r.message = strings.ToValidUTF8(r.message[:maxReason], "")
	}
	switch d.State {
	case Healthy:
		r.status = "True"
		r.reason = "Healthy"
		r.message = ""
	case Withheld: // it works for its holder
		r.status = "True"
		r.reason = "Withheld"
	case Settling:
		r.reason = "Settling"
	case Gone:
		r.reason = "Gone"
	default:
		r.reason = "Unhealthy"
	}
	return r
}

// condition returns the condition of a device whose last one is known. The time of the transition
// only changes with the status.
func (r readiness) condition(last *condition, now time.Time) condition {
	since := r.since
	if since.IsZero() {
		since = now
	}
	c := condition{
		Type:               ready,
		Status:             r.status,
		Reason:             r.reason,
		Message:            r.message,
		LastTransitionTime: since.UTC().Format(time.RFC3339),
	}
	if last != nil && last.Status == r.status {
		c.LastTransitionTime = last.LastTransitionTime
	}
	return c
}

// readinesses returns the state of the devices of a claim by their name in the pool. devices are all
// devices by ID.
func readinesses(claim cdi.Claim, devices map[string]*Device) map[string]readiness {
	all := map[string]readiness{}
	for _, key := range claim.AllDevices() {
		// A device that moves to another resource is the same device.
		id := deviceID(key)
		all[DeviceName(id)] = readinessOf(devices[id])
	}
	return all
}

// status returns what the driver should report in a claim, in the order of its allocation, and
// whether the claim already has it.
func (o *resourceClaim) status(node string, want map[string]readiness, now time.Time) (devices []deviceStatus, isCurrent bool) {
	isCurrent = true
	if o.Status.Allocation == nil {
		return nil, true
	}
	for _, a := range o.Status.Allocation.Devices.Results {
		r, isPrepared := want[a.Device]
		isOwn := a.Driver == Driver && a.Pool == PoolName(node)
		if !isOwn || !isPrepared {
			continue
		}
		next := deviceStatus{
			Driver:  Driver,
			Pool:    PoolName(node),
			Device:  a.Device,
			ShareID: a.ShareID,
		}
		last := o.reported(next)
		next.Conditions = []condition{r.condition(last.ready(), now)}
		next.NetworkData = last.NetworkData // an interface is not visible while a container has it
		if r.network != (device.Network{}) {
			next.NetworkData = &networkData{
				InterfaceName:   r.network.Name,
				HardwareAddress: r.network.Address,
			}
		}
		isCurrent = isCurrent && last.equal(next)
		devices = append(devices, next)
	}
	return devices, isCurrent
}

// reported returns what a claim has about the device of another status. The result is zero if there
// is nothing.
func (o *resourceClaim) reported(of deviceStatus) deviceStatus {
	for _, d := range o.Status.Devices {
		isDevice := d.Driver == of.Driver && d.Pool == of.Pool && d.Device == of.Device
		if isDevice && equalPointers(d.ShareID, of.ShareID) {
			return d
		}
	}
	return deviceStatus{}
}

// ready returns the condition Ready, or nil. Other conditions belong to other programs.
func (d deviceStatus) ready() *condition {
	for i := range d.Conditions {
		if d.Conditions[i].Type == ready {
			return &d.Conditions[i]
		}
	}
	return nil
}

// equal reports whether two statuses of one device have the same condition Ready and the same
// network data.
func (d deviceStatus) equal(other deviceStatus) bool {
	return equalPointers(d.ready(), other.ready()) && equalPointers(d.NetworkData, other.NetworkData)
}

// equalPointers reports whether both pointers are nil or point to equal values.
func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
