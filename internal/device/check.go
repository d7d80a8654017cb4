package device

import "time"

// Check is the health check of one device. All its parts must pass.
type Check struct {
	// Open lists nodes that must open, by their paths on the host.
	Open []string
	// Attrs are attributes that must have their wanted value.
	Attrs []AttrCheck
	// Links are the network interfaces that must have a carrier.
	Links []LinkCheck
	// TCP is an address HOST:PORT that must accept connections. It is empty if there is no such
	// check.
	TCP string
	// Interval is the time between two checks.
	Interval time.Duration
}

// AttrCheck is an attribute and its wanted value.
type AttrCheck struct {
	// Name is a path relative to a directory of the host's sysfs.
	Name string
	// Dirs are the directories to search, as paths on the host: one list for each node, with the
	// nearest directory first. The first directory that has the attribute decides. The values
	// of all nodes must match.
	Dirs [][]string
	Want Condition
}

// LinkCheck is about a network function. One of its interfaces must have a carrier.
type LinkCheck struct {
	// Of names the function in reasons: an interface, or the physical function of a virtual one.
	Of string
	// Dirs are the sysfs directories of its interfaces, as paths on the host.
	Dirs []string
}

// Condition tests a value.
type Condition interface {
	// Match reports whether a value matches. No value means that the attribute is absent.
	Match(have ...string) bool
	// Patterns returns the condition as written.
	Patterns() []string
}
