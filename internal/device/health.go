package device

import "time"

// Health is what the health directory of a device shows to containers, see package healthdir. It is
// stored in a file, so that it survives a restart of the program.
type Health struct {
	// Nodes identify the nodes that a container may have in this boot, by path.
	Nodes map[string]string `json:"nodes,omitempty"`
	// Healthy is set if the device was healthy when it was last checked.
	Healthy bool `json:"healthy,omitempty"`
	// Lost is when the device last disappeared or moved. It is the zero time if that did not happen
	// since the last hold expired.
	Lost time.Time `json:"lost,omitzero"`
}
