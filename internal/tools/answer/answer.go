// Package answer has the types of the JSON that the commands of generic-dp print, as far as the
// plugin of kubectl reads it from the nodes. The names of the JSON fields are an API: a node and the
// plugin may have different versions.
package answer

import (
	"cmp"
	"fmt"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/status"
)

// Check is the output of `check -o json`. Files are in the order of the arguments.
type Check struct {
	Files []File `json:"files"`
}

// File is the result for one configuration. The counts are 0 if its text is invalid.
type File struct {
	// Path is the argument as it was given. It may be a directory, and "-" for standard input.
	Path      string `json:"path"`
	OK        bool   `json:"ok"`
	Resources int    `json:"resources"`
	// Devices is the number of devices on this host that a container can get, and Unusable the
	// number of devices that it cannot get.
	Devices  int `json:"devices"`
	Unusable int `json:"unusable"`
	// Problems are mistakes, and OK is set if there are none. A problem that only shows on this
	// host has the line and column 0.
	Problems []config.Problem `json:"problems"`
	// Notes may be intended. They do not affect OK and the exit status.
	Notes []config.Problem `json:"notes"`
	// Against compares the configuration with another one. It is nil without --against, and if the
	// text is invalid: serve would refuse it.
	Against *Comparison `json:"against,omitempty"`
}

// Comparison is what a configuration would change on a host. Changes is never nil.
type Comparison struct {
	Changes []Change `json:"changes"`
	// HeldUnknown is why the holders are unknown. It is empty if they are known. Changes have no
	// holders then, which does not mean that no pod is affected.
	HeldUnknown string `json:"held_unknown"`
}

// Effect is what an edit does to a device.
type Effect string

// The effects of an edit.
const (
	Added           Effect = "added"
	Removed         Effect = "removed"
	Moved           Effect = "moved"    // to another resource
	Renamed         Effect = "renamed"  // it has another ID in the same resource
	SlotsChanged    Effect = "slots"    // it has another number of slots
	ContentsChanged Effect = "contents" // a container gets something else
)

// Change is one effect of an edit.
type Change struct {
	Change Effect `json:"change"`
	// Old is empty if the device was added, and New if it was removed.
	Old Entry `json:"old"`
	New Entry `json:"new"`
	// Details are what changes in a device, one difference in each line. A minus is a loss, and a
	// plus an addition.
	Details []string `json:"details"`
	// Held are the containers that hold what the edit takes away. They cannot restart with it.
	Held []status.Holder `json:"held"`
}

// Entry is a device of a resource, as it is listed. The zero Entry stands for no device.
type Entry struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Slots    int    `json:"slots"`
}

// Listed returns the old entry, or the new one if there is no old one. It is the entry under
// which pods know the device now.
func (c *Change) Listed() Entry { return cmp.Or(c.Old, c.New) }

// Becomes says what a changed device is after the edit, for the end of a line. It is empty for a
// device that is added or removed.
func (c *Change) Becomes() string {
	switch c.Change {
	case Moved:
		if c.New.ID != c.Old.ID {
			return ": moves to " + c.New.Resource + " as " + c.New.ID
		}
		return ": moves to " + c.New.Resource
	case Renamed:
		return ": gets the ID " + c.New.ID
	case SlotsChanged:
		return fmt.Sprintf(": %d slots become %d", c.Old.Slots, c.New.Slots)
	case ContentsChanged:
		return ": a container gets something else when it starts"
	}
	return ""
}
