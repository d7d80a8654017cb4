package metrics

import "time"

// Status is all that there is to say of the running program at one moment. The
// names of its fields in JSON are those of the configuration, the log and the
// columns of `devices`; they stay. Lists are never null.
type Status struct {
	Version  string    `json:"version"`
	NodeName string    `json:"node_name"`
	Command  string    `json:"command"` // serve or cdi
	Started  time.Time `json:"started"`
	// NotReady is what is missing; empty where nothing is.
	NotReady []string `json:"not_ready"`
	Config   Config   `json:"config"`
	// Kubelet is nil where there is none to serve.
	Kubelet *Kubelet `json:"kubelet"`
	// Degraded are the sources of events that are not to be had.
	Degraded []Problem `json:"degraded"`
	// Problems are what can't be read, written or meant on this host.
	Problems []Problem `json:"problems"`
	// HeldUnknown is why it is not known who holds what; empty where it is.
	HeldUnknown string `json:"held_unknown"`
	// Resources in the order of the configuration, then those that are being
	// retired.
	Resources []Resource `json:"resources"`
	// Events are the latest, oldest first.
	Events []Event `json:"events"`
}

// Config is the configuration that is served.
type Config struct {
	Path string `json:"path"`
	// Hash of its text, see config.Config.
	Hash string `json:"hash"`
	// Loaded is when it was taken over.
	Loaded time.Time `json:"loaded"`
	// Generation counts those that were served since the start, from 1.
	Generation int `json:"generation"`
	// Broken is why it is the last good one and not the one on disk; nil where
	// it is that. Problems are the lines of it.
	Broken   error    `json:"-"`
	Problems []string `json:"problems"`
}

// Kubelet is what is known of the kubelet.
type Kubelet struct {
	// Present: its socket is there.
	Present bool `json:"present"`
	// Restarts since the start of the program.
	Restarts int `json:"restarts"`
}

// Problem is something that is wrong, and why.
type Problem struct {
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
}

// Resource is how one resource is.
type Resource struct {
	Name string `json:"name"`
	// Registered: the kubelet has the resource and keeps its stream open, else
	// Reason says why not. It is always false where there is no kubelet.
	Registered bool     `json:"registered"`
	Reason     string   `json:"reason"`
	Retired    bool     `json:"retired"` // the configuration has it no more
	Slots      Slots    `json:"slots"`
	Devices    []Device `json:"devices"`
}

// Slots are the slots of a resource: what the kubelet counts.
type Slots struct {
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"`
	// Held by containers, and Free, which are healthy and not held; nil where
	// that is not known.
	Held *int `json:"held"`
	Free *int `json:"free"`
	// Allocatable is how many the kubelet could hand out, held or not, by its
	// own account; nil where it does not say.
	Allocatable *int `json:"allocatable"`
}

// Device is one device of a resource.
type Device struct {
	ID     string `json:"id"`
	Health string `json:"health"` // Healthy or Unhealthy
	Reason string `json:"reason"`
	Slots  int    `json:"slots"`
	NUMA   []int  `json:"numa"`
	// What a container is given, by its place on the host.
	Nodes      []string `json:"nodes"`
	Interfaces []string `json:"interfaces"`
	CDIDevices []string `json:"cdi_devices"`
	Mounts     []string `json:"mounts"`
	// Held by these containers, as far as that is known.
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

// Event is something that happened to a resource, a device, or neither.
type Event struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"`
	ID       string    `json:"id"`
	What     string    `json:"what"`
}
