package status

import (
	"sync"
	"time"
)

// The metrics that a call of Metrics updates, unlike the gauges of a Status. Labels are named like the
// configuration keys, the log keys and the columns of `devices`.
var (
	loads = family{"generic_dp_config_loads_total", "counter",
		"Loads of the configuration, including the first one, by result: ok or error."}
	registrations = family{"generic_dp_registrations_total", "counter",
		"Registrations accepted by the kubelet, by reason."}
	refusals = family{"generic_dp_registration_refusals_total", "counter",
		"Failed registration attempts."}
	allocations = family{"generic_dp_allocations_total", "counter",
		"Allocate calls by result: ok or error."}
	allocationSeconds = family{"generic_dp_allocation_duration_seconds", "histogram",
		"Duration of Allocate calls."}
	sliceWrites = family{"generic_dp_slice_writes_total", "counter",
		"Writes of ResourceSlices to the API server by result: ok or error."}
	scanFailures = family{"generic_dp_scan_failures_total", "counter",
		"Failed scans; the last snapshot stays in use."}
	scanSeconds = family{"generic_dp_scan_duration_seconds", "histogram",
		"Duration of scans of the host."}
	uevents = family{"generic_dp_uevents_total", "counter",
		"Devices announced by uevents, once per scan."}
	evictions = family{"generic_dp_evictions_total", "counter",
		"Requested evictions of pods by result: ok, blocked or error."}
)

// Metrics counts events and serves them with the gauges of a Node. A nil *Metrics
// counts nothing. It is safe for concurrent use.
type Metrics struct {
	state State
	// node is nil in a program without devices.
	node Node
	// rendering is a semaphore: a single Status at a time is rendered and sent.
	rendering chan struct{}

	mu     sync.Mutex
	events exposition
}

// New returns the metrics of a process that serves state. If state is also a Node, its gauges and
// its status are served as well.
func New(state State) *Metrics {
	m := &Metrics{
		state:     state,
		rendering: make(chan struct{}, 1),
		events:    exposition{},
	}
	m.node, _ = state.(Node)
	if m.node != nil {
		// Metrics without labels are present from the start.
		for _, f := range []family{scanFailures, scanSeconds, uevents} {
			m.events.sample(f)
		}
	}
	return m
}

// add adds to a counter, or observes a value of a histogram.
func (m *Metrics) add(f family, value float64, labels ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events.sample(f, labels...).add(value)
}

// CountLoad counts a load of the configuration. err is nil if it is valid.
func (m *Metrics) CountLoad(err error) {
	m.add(loads, 1, "result", result(err))
}

// CountRegistration counts a registration that the kubelet accepted.
func (m *Metrics) CountRegistration(resource, reason string) {
	m.add(registrations, 1, "reason", reason, "resource", resource)
}

// CountRefusal counts a failed registration.
func (m *Metrics) CountRefusal(resource string) {
	m.add(refusals, 1, "resource", resource)
}

// CountAllocation counts an Allocate call. For DRA it counts a claim, and resource is the name of
// the driver.
func (m *Metrics) CountAllocation(resource string, took time.Duration, err error) {
	m.add(allocations, 1, "resource", resource, "result", result(err))
	m.add(allocationSeconds, took.Seconds(), "resource", resource)
}

// CountSliceWrite counts a write of a ResourceSlice.
func (m *Metrics) CountSliceWrite(err error) {
	m.add(sliceWrites, 1, "result", result(err))
}

// CountScan counts a scan of the host: the devices that uevents announced, and its duration or failure.
func (m *Metrics) CountScan(announced int, took time.Duration, err error) {
	m.add(uevents, float64(announced))
	if err != nil {
		m.add(scanFailures, 1)
	} else {
		m.add(scanSeconds, took.Seconds())
	}
}

// CountEvictions counts n requests to evict a pod: "ok", "blocked" by a disruption budget, or
// "error".
func (m *Metrics) CountEvictions(n int, result string) {
	m.add(evictions, float64(n), "result", result)
}

// Forget drops the counters of a removed resource. A resource of the same name starts from zero
// again.
func (m *Metrics) Forget(resource string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.events {
		f.forget("resource", resource)
	}
}

// result is the value of the label result.
func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
