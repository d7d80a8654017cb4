// Package wire is what the test on the host and the program in the emulated
// machine say to each other: arguments and answers of net/rpc calls, JSON
// values one after another on a virtio serial port.
//
// All times are of the machine's own clock.
package wire

import "time"

// Service is the name of the service, whose methods are those of package guest.
const Service = "Guest"

// None is for calls without arguments or without an answer.
type None struct{}

// Serve says how to start the program under test.
type Serve struct {
	// Config is the text of its configuration.
	Config string
	// Keep leaves the files of the run before: links and state. The kubelet
	// stays up, too, and what it has admitted.
	Keep bool
}

// Device is a device as a list of the plugin has it.
type Device struct {
	Healthy bool
	NUMA    []int64
}

// Link is a link below the run directory.
type Link struct {
	// Target is where it leads to.
	Target string
	// Made is when it was made, by the clock of file systems, which is up to
	// four milliseconds behind.
	Made time.Time
}

// List is one list that the kubelet received.
type List struct {
	Resource string
	// Received counts the lists of the resource, from 1.
	Received int
	At       time.Time
	Devices  map[string]Device
	// Links are those that were there when the list came, or a moment later, by
	// their paths below the links directory.
	Links map[string]Link
}

// Want is what the latest list of a resource is to be.
type Want struct {
	Resource string
	// Healthy and Unhealthy are IDs of devices.
	Healthy, Unhealthy []string
	// More tolerates other devices.
	More bool
	// After is how many lists of the resource are to be passed over.
	After int
	// Within is the longest time to wait; the error says what was there.
	Within time.Duration
	// Allocate asks for the healthy devices at once when the list is there.
	Allocate bool
}

// Got is the answer to Want.
type Got struct {
	List List
	// Answer is there with Want.Allocate.
	Answer Answer
}

// Allocate asks for devices.
type Allocate struct {
	Resource string
	IDs      []string
	// Pod, if it is not empty, holds them from then on.
	Pod string
}

// Node is a device node that a container is given.
type Node struct {
	Container, Host, Permissions string
	// Path is where Host leads to, Number its device number, "188:0".
	Path, Number string
}

// Answer is the answer to Allocate.
type Answer struct {
	Nodes []Node
	Env   map[string]string
}

// Files waits until the names that match Glob are Want; an empty Want is none.
type Files struct {
	Glob   string
	Want   []string
	Within time.Duration
}

// Write writes a file.
type Write struct{ Path, Text string }

// Run runs the program under test with other arguments.
type Run struct{ Args []string }

// Output is what it printed.
type Output struct{ Stdout, Stderr string }

// Usage is what the program under test uses, by its cgroup and its process.
type Usage struct {
	// Memory is resident memory, Anonymous that which is no file's, in bytes.
	Memory, Anonymous int64
	// Tasks are threads, Files open file descriptors.
	Tasks, Files int
	// CPU is what it has used so far.
	CPU time.Duration
}

// Appeared asks when a name appeared below /dev, since the last time of asking
// for it.
type Appeared struct{ Name string }
