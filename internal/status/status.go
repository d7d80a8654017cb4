package status

import (
	"cmp"
	"time"
)

// Status is the state of the program at one moment. The names of its JSON fields are an
// API; the configuration, the log and the columns of `devices` use the same names. Lists
// are never null.
type Status struct {
	// Version is the version of the program.
	Version string `json:"version"`
	// NodeName is the name of the node, empty if it is not known.
	NodeName string `json:"node_name"`
	// Host is the name of the host.
	Host string `json:"host"`
	// Command is "serve" or "serve --no-kubelet".
	Command string `json:"command"`
	// Started is the start of the program.
	Started time.Time `json:"started"`
	// NotReady is why the program is not ready. It is empty if the program is ready.
	NotReady []string `json:"not_ready"`
	// Config is the served configuration, which may differ from the one on disk.
	Config Config `json:"config"`
	// Kubelet is nil if there is no kubelet to serve.
	Kubelet *Kubelet `json:"kubelet"`
	// Degraded are the unavailable sources of events.
	Degraded []Problem `json:"degraded"`
	// Problems are the current problems on this host.
	Problems []Problem `json:"problems"`
	// HeldUnknown is why the holders are unknown. It is empty if they are known.
	HeldUnknown string `json:"held_unknown"`
	// Resources are in the order of the configuration. The retiring ones follow.
	Resources []Resource `json:"resources"`
	// Events are the latest events, the oldest first.
	Events []Event `json:"events"`
}

// Node is the name of the node, or of the host if the node has no name.
func (s *Status) Node() string {
	return cmp.Or(s.NodeName, s.Host)
}

// Config is the served configuration.
type Config struct {
	// Path is the file or the directory of --config.
	Path string `json:"path"`
	// Hash is the hash of the text, see config.Config.
	Hash string `json:"hash"`
	// Loaded is when this configuration began to be served.
	Loaded time.Time `json:"loaded"`
	// Generation counts the configurations served since the start, from 1.
	Generation int `json:"generation"`
	// Broken is the error of the configuration on disk, nil if that configuration is
	// served.
	Broken error `json:"-"`
	// Problems are the lines of Broken.
	Problems []string `json:"problems"`
}

// Kubelet is the kubelet as seen by the program.
type Kubelet struct {
	// Present is set if its socket exists.
	Present bool `json:"present"`
	// Restarts counts its restarts since the start of the program.
	Restarts int `json:"restarts"`
}

// Problem is a problem and its reason.
type Problem struct {
	// Subject is what has the problem: a file, a flag, a device, or "configuration".
	Subject string `json:"subject"`
	// Reason is one line for an administrator. It may contain serial numbers.
	Reason string `json:"reason"`
}

// Event is a change of a resource, a device, or the program.
type Event struct {
	Time time.Time `json:"time"`
	// Resource and ID are empty if the event is not about one.
	Resource string `json:"resource"`
	ID       string `json:"id"`
	// What is the event, as a phrase for people.
	What string `json:"what"`
}
