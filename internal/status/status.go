package status

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Status is the state of the program at one moment. The names of its JSON fields are an
// API; the configuration, the log and the columns of `devices` use the same names. Lists
// are never null.
type Status struct {
	Version  string    `json:"version"`
	NodeName string    `json:"node_name"`
	Command  string    `json:"command"` // serve or cdi
	Started  time.Time `json:"started"`
	NotReady []string  `json:"not_ready"` // empty when ready
	Config   Config    `json:"config"`
	Kubelet  *Kubelet  `json:"kubelet"`  // nil without a kubelet to serve
	Degraded []Problem `json:"degraded"` // unavailable event sources
	Problems []Problem `json:"problems"` // current problems on this host
	LeftOut  LeftOut   `json:"left_out"`
	// HeldUnknown is why the holders are unknown; empty if they are known.
	HeldUnknown string `json:"held_unknown"`
	// Resources in the order of the configuration, then the retiring ones.
	Resources []Resource `json:"resources"`
	// Events are the latest, oldest first.
	Events []Event `json:"events"`
}

// Config is the served configuration.
type Config struct {
	Path   string    `json:"path"`
	Hash   string    `json:"hash"` // of its text, see config.Config
	Loaded time.Time `json:"loaded"`
	// Generation counts the configurations served since the start, from 1.
	Generation int `json:"generation"`
	// Broken is the error of the configuration on disk, nil if that one is served.
	// Problems has its lines.
	Broken   error    `json:"-"`
	Problems []string `json:"problems"`
}

// Kubelet is the kubelet as seen by the program.
type Kubelet struct {
	Present  bool `json:"present"`  // its socket exists
	Restarts int  `json:"restarts"` // since the start of the program
}

// Problem is a problem and its reason.
type Problem struct {
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
}

// LeftOut counts what the lists for the kubelet have no room for.
type LeftOut struct {
	// Devices is the number of present devices that are not listed with all their slots.
	Devices int `json:"devices"`
	// Held is the number of devices that were never present and are not listed, although
	// the kubelet reports that containers hold them.
	Held int `json:"held"`
	// AbsentSlots is the number of slots of absent devices that left the lists early, since
	// the start.
	AbsentSlots int `json:"absent_slots"`
	// Lately is set if such slots left in the last ten minutes.
	Lately bool `json:"lately"`
}

// Lines describe what is left out, without serial numbers.
func (l LeftOut) Lines() []string {
	var lines []string
	if l.Devices > 0 {
		lines = append(lines, fmt.Sprintf("%d present devices are not listed with all their slots, because the lists have no room", l.Devices))
	}
	if l.Held > 0 {
		lines = append(lines, fmt.Sprintf("%d absent devices that the kubelet reports as held are not listed, because the lists have no room", l.Held))
	}
	if l.Lately {
		lines = append(lines, "absent devices left the lists early, because the lists have no room")
	}
	return lines
}

// Resource is the state of a resource.
type Resource struct {
	Name string `json:"name"`
	// API is "device-plugin" or "dra".
	API string `json:"api"`
	// Registered: the kubelet accepted the DRA driver, or the resource, and keeps its
	// ListAndWatch stream open. Reason is why not. Always false without a kubelet.
	Registered bool     `json:"registered"`
	Reason     string   `json:"reason"`
	Retired    bool     `json:"retired"`    // no longer configured
	NoDevices  string   `json:"no_devices"` // why there is no device; empty if there is one
	Slots      Slots    `json:"slots"`
	Devices    []Device `json:"devices"`
}

// Title is the name of the resource, with its API unless that is the default: while devices
// move from one API to the other, two resources have the same name.
func (r Resource) Title() string {
	if r.API == "dra" {
		return r.Name + " (dra)"
	}
	return r.Name
}

// Slots counts the slots of a resource, which are devices to the kubelet.
type Slots struct {
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"`
	// Held by containers, and Free: healthy and not held. Both are nil while the
	// holders are unknown.
	Held *int `json:"held"`
	Free *int `json:"free"`
	// Allocatable as the kubelet reports it, held or not; nil if it does not.
	Allocatable *int `json:"allocatable"`
}

// Device is a device of a resource.
type Device struct {
	ID      string `json:"id"`
	Product string `json:"product"` // as the device reports it
	Health  string `json:"health"`  // Healthy or Unhealthy
	Reason  string `json:"reason"`
	Slots   int    `json:"slots"`
	NUMA    []int  `json:"numa"`
	// Injected into a container, by names on the host.
	Nodes      []string `json:"nodes"`
	Interfaces []string `json:"interfaces"`
	CDIDevices []string `json:"cdi_devices"`
	Mounts     []string `json:"mounts"`
	// Held by these containers, as far as known.
	Held []Holder `json:"held"`
}

// The values of Device.Health, and of the label health.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
)

// Holder is a container that holds a slot of a device.
type Holder struct {
	ID        string `json:"id"` // of the slot
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// Event is a change of a resource, a device, or the program.
type Event struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"`
	ID       string    `json:"id"`
	What     string    `json:"what"`
}

// NewDevice returns the state of an offered device that no container holds.
func NewDevice(o device.Offer, healthy bool, reason string) Device {
	d := Device{
		ID: o.ID, Product: o.Product, Health: Unhealthy, Reason: reason, Slots: o.Slots, NUMA: append([]int{}, o.NUMA...),
		Nodes: []string{}, Interfaces: []string{}, CDIDevices: append([]string{}, o.CDIDevices...), Mounts: []string{},
		Held: []Holder{},
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
// their names on the host; without any of these, the mounts.
func (d *Device) Host() []string {
	if all := slices.Concat(d.Nodes, d.Interfaces, d.CDIDevices); len(all) > 0 {
		return all
	}
	return d.Mounts
}

// Holders lists the containers that hold the device as "namespace/pod/container",
// with the slot where the device has several.
func (d *Device) Holders() []string {
	var all []string
	for _, h := range d.Held {
		text := h.Namespace + "/" + h.Pod + "/" + h.Container
		if slot, ok := strings.CutPrefix(h.ID, d.ID+"::"); ok {
			text += " (slot " + slot + ")"
		}
		all = append(all, text)
	}
	return all
}

// ProblemsFirst sorts resources and devices: first those that need an administrator, last
// the resources without devices; the order is stable.
func (s *Status) ProblemsFirst() {
	unhealthy := func(d Device) bool { return d.Health != Healthy }
	rank := func(r Resource) int {
		switch {
		case len(r.Devices) == 0:
			return 2
		case slices.ContainsFunc(r.Devices, unhealthy), s.Kubelet != nil && !r.Registered:
			return 0
		}
		return 1
	}
	sort.SliceStable(s.Resources, func(i, j int) bool { return rank(s.Resources[i]) < rank(s.Resources[j]) })
	for _, r := range s.Resources {
		sort.SliceStable(r.Devices, func(i, j int) bool { return unhealthy(r.Devices[i]) && !unhealthy(r.Devices[j]) })
	}
}

// Alert is a heading with the lines below it.
type Alert struct {
	Heading string
	Lines   []string
}

// Alerts lists the problems that need an administrator, most urgent first.
func (s *Status) Alerts() []Alert {
	lines := func(problems []Problem) (all []string) {
		for _, p := range problems {
			all = append(all, p.Subject+": "+p.Reason)
		}
		return all
	}
	alerts := []Alert{
		{"Configuration on disk is broken, the last good one is served", s.Config.Problems},
		{"Not ready", s.NotReady},
		{"The lists for the kubelet are full", s.LeftOut.Lines()},
		{"Problems on this host", lines(s.Problems)},
		{"Event sources unavailable, full scan every minute", lines(s.Degraded)},
	}
	return slices.DeleteFunc(alerts, func(a Alert) bool { return len(a.Lines) == 0 })
}
