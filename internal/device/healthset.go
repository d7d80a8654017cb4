package device

import "time"

// HealthSet is a set of devices that a container got together with a health directory, see
// package healthdir. It outlives a restart of the program.
type HealthSet struct {
	// IDs of the devices, sorted.
	IDs []string `json:"ids"`
	// Hold is how long the set stays unhealthy after a loss, at least.
	Hold time.Duration `json:"hold"`
	// Nodes identify the nodes that a container may have got in this boot, by the ID of
	// the device and the path.
	Nodes map[string]map[string]string `json:"nodes,omitempty"`
	// Healthy is set if all devices were healthy last.
	Healthy bool `json:"healthy,omitempty"`
	// Lost is when a device went or moved last, the zero time if none did since the last
	// hold expired.
	Lost time.Time `json:"lost,omitzero"`
}
