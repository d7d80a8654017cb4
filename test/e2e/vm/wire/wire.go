// Package wire is the protocol between the test on the host and the program in the
// emulated machine: arguments and results of net/rpc calls, as JSON values on a virtio
// serial port.
//
// All times are by the machine's clock.
package wire

import "time"

// Service is the name of package guest's service.
const Service = "Guest"

// None is the argument or result of calls without any.
type None struct{}

// Serve are the arguments of a start of the program under test.
type Serve struct {
	// Config is the text of its configuration.
	Config string
	// Keep keeps the files of the previous run: links and state. The kubelet and its
	// admitted pods stay too.
	Keep bool
}

// Device is a device on a list of the plugin.
type Device struct {
	Healthy bool
	NUMA    []int64
}

// Link is a link below the run directory.
type Link struct {
	Target string
	// Made is when it was made, by the clock of file systems, which is up to four
	// milliseconds behind.
	Made time.Time
}

// List is one list that the kubelet received.
type List struct {
	Resource string
	// Received counts the lists of the resource, from 1.
	Received int
	At       time.Time
	Devices  map[string]Device
	// Links are the links at the arrival of the list, or shortly after, by their paths
	// below the links directory.
	Links map[string]Link
}

// Want is the wanted latest list of a resource.
type Want struct {
	Resource string
	// Healthy and Unhealthy are IDs of devices.
	Healthy, Unhealthy []string
	// More permits other devices.
	More bool
	// After is how many lists of the resource to skip.
	After int
	// Within is the timeout; the error contains the latest list.
	Within time.Duration
	// Allocate allocates the healthy devices as soon as the list arrives.
	Allocate bool
}

// Got is the answer to Want.
type Got struct {
	List List
	// Answer is set with Want.Allocate.
	Answer Answer
}

// Allocate are the arguments of an allocation.
type Allocate struct {
	Resource string
	IDs      []string
	// Pod holds them from then on, unless empty.
	Pod string
}

// Node is a device node injected into a container.
type Node struct {
	Container, Host, Permissions string
	// Path is the target of Host, Number its device number, "188:0".
	Path, Number string
}

// Answer is the response to Allocate.
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

// Run runs another process of the program under test.
type Run struct{ Args []string }

// Output is its output.
type Output struct{ Stdout, Stderr string }

// Usage is the resource usage of the program under test, from its cgroup and its
// process.
type Usage struct {
	// Memory is resident memory, Anonymous its anonymous part, in bytes.
	Memory, Anonymous int64
	// Tasks are threads, Files open file descriptors.
	Tasks, Files int
	// CPU is its CPU time so far.
	CPU time.Duration
}

// Appeared requests when a name appeared below /dev, since the last request for it.
type Appeared struct{ Name string }
