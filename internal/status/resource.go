package status

import (
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Resource is the state of a resource.
type Resource struct {
	// Name is the name without the API, see Title.
	Name string `json:"name"`
	// API is "device-plugin" or "dra".
	API string `json:"api"`
	// Registered is set if the kubelet accepted the DRA driver, or if it accepted the
	// resource and keeps its ListAndWatch stream open. It is never set without a kubelet.
	Registered bool `json:"registered"`
	// Reason is why the resource is not registered.
	Reason string `json:"reason"`
	// Retired is set if the resource is no longer configured.
	Retired bool `json:"retired"`
	// NoDevices is why there is no device, empty if there is one.
	NoDevices string `json:"no_devices"`
	// Slots counts the listed slots, and also what the kubelet says about them.
	Slots Slots `json:"slots"`
	// Devices are in natural order of their IDs.
	Devices []Device `json:"devices"`
}

// Title is the name of the resource, and its API unless that is the device plugin API. While
// devices move from one API to the other, two resources have the same name.
func (r Resource) Title() string {
	if r.API == "dra" {
		return r.Name + " (dra)"
	}
	return r.Name
}

// IsNamed reports whether an administrator means a resource by a name, with or without its domain. name
// must not be empty.
func IsNamed(resource, name string) bool {
	return resource == name || strings.HasSuffix(resource, "/"+name)
}

// Problems is the number of devices that are Unhealthy. Retiring devices do not count.
func (r *Resource) Problems() int {
	n := 0
	for _, d := range r.Devices {
		if d.Health == Unhealthy {
			n++
		}
	}
	return n
}

// Slots counts the slots of a resource, which are devices to the kubelet.
type Slots struct {
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"`
	// Retiring slots leave the list because of an edit of the configuration. The kubelet
	// sees them as unhealthy.
	Retiring int `json:"retiring"`
	// Held slots are held by containers. Free slots are healthy and not held. Both are nil
	// while the holders are unknown.
	Held *int `json:"held"`
	Free *int `json:"free"`
}

// All is the number of listed slots.
func (s Slots) All() int {
	return s.Healthy + s.Unhealthy + s.Retiring
}

// The values of Device.Health, and of the label health.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
	// Retiring devices work, but no further pod gets them. Most leave the list because of an edit
	// of the configuration: their resource is no longer configured, or another resource offers
	// them. Others are held by another resource, or DRA cannot publish them.
	Retiring = "Retiring"
)

// Device is a device of a resource.
type Device struct {
	ID string `json:"id"`
	// Product is the name of the product as the device reports it.
	Product string `json:"product"`
	// Health is Healthy, Unhealthy or Retiring.
	Health string `json:"health"`
	// Reason is why the device is not Healthy.
	Reason string `json:"reason"`
	// Since is when this health and this reason began, or the start of the program.
	Since time.Time `json:"since,omitzero"`
	// Help is the section of the documentation that explains the reason.
	Help Section `json:"help,omitempty"`
	// Slots is the number of listed slots.
	Slots int   `json:"slots"`
	NUMA  []int `json:"numa"`
	// Nodes, Interfaces, CDIDevices and Mounts are injected into a container. They have
	// their names on the host.
	Nodes      []string `json:"nodes"`
	Interfaces []string `json:"interfaces"`
	CDIDevices []string `json:"cdi_devices"`
	Mounts     []string `json:"mounts"`
	// Held are the containers that hold the device, as far as known.
	Held []Holder `json:"held"`
}

// Holder is a container that holds a slot of a device.
type Holder struct {
	// ID is the ID of the slot.
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// NewDevice returns the state of an offered device that no container holds. Since and Help are left
// to the caller.
func NewDevice(o device.Offer, healthy bool, reason string) Device {
	d := Device{
		ID:         o.ID,
		Product:    o.Product,
		Health:     Unhealthy,
		Reason:     reason,
		Slots:      o.Slots,
		NUMA:       append([]int{}, o.NUMA...),
		Nodes:      []string{},
		Interfaces: []string{},
		CDIDevices: append([]string{}, o.CDIDevices...),
		Mounts:     []string{},
		Held:       []Holder{},
	}
	if healthy {
		d.Health = Healthy
	}
	for _, n := range o.Nodes {
		d.Nodes = append(d.Nodes, n.HostPath)
	}
	for _, n := range o.Nets {
		d.Interfaces = append(d.Interfaces, n.HostName)
	}
	for _, m := range o.Mounts {
		d.Mounts = append(d.Mounts, m.HostPath)
	}
	return d
}

// Host lists the nodes, interfaces and CDI devices that are injected into a container, by
// their names on the host. It lists the mounts if there is nothing else.
func (d *Device) Host() []string {
	all := slices.Concat(d.Nodes, d.Interfaces, d.CDIDevices)
	if len(all) > 0 {
		return all
	}
	return d.Mounts
}

// Holders lists the containers that hold the device as "namespace/pod/container", with the
// slot if the device has more than one.
func (d *Device) Holders() []string {
	var all []string
	for _, h := range d.Held {
		text := h.Namespace + "/" + h.Pod + "/" + h.Container
		slot, hasSlot := strings.CutPrefix(h.ID, d.ID+"::")
		if hasSlot {
			text += " (slot " + slot + ")"
		}
		all = append(all, text)
	}
	return all
}
