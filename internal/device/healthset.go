package device

import "time"

// HealthSet is a set of devices that were allocated to a container together with a health directory,
// see package healthdir. It is stored in a file, so that it survives a restart of the program.
type HealthSet struct {
	// IDs of the devices, sorted.
	IDs []string `json:"ids"`
	// Nodes identify the nodes that a container may have in this boot, by the ID of the device
	// and the path.
	Nodes map[string]map[string]string `json:"nodes,omitempty"`
	// Healthy is set if all devices were healthy when they were last checked.
	Healthy bool `json:"healthy,omitempty"`
	// Lost is when a device last disappeared or moved. It is the zero time if that did not happen
	// since the last hold expired.
	Lost time.Time `json:"lost,omitzero"`
}
