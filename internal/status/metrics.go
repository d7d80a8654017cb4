package status

import (
	"runtime"
	"sync"
	"time"
)

// The names of counters and histograms. Labels are named like the configuration keys, the log
// keys and the columns of `devices`.
const (
	configLoadsTotal   = "generic_dp_config_loads_total"
	registrationsTotal = "generic_dp_registrations_total"
	refusalsTotal      = "generic_dp_registration_refusals_total"
	allocationsTotal   = "generic_dp_allocations_total"
	allocationSeconds  = "generic_dp_allocation_duration_seconds"
	sliceWritesTotal   = "generic_dp_slice_writes_total"
	scansTotal         = "generic_dp_scans_total"
	ueventsTotal       = "generic_dp_uevents_total"
	scanSeconds        = "generic_dp_scan_duration_seconds"
	scanFailuresTotal  = "generic_dp_scan_failures_total"
	evictionsTotal     = "generic_dp_evictions_total"
)

// ScanReason is what requested a scan of the host.
type ScanReason string

// The values of the label reason of scansTotal.
const (
	ScanUevent   ScanReason = "uevent"   // the kernel announced changed devices
	ScanNames    ScanReason = "names"    // names below /dev changed
	ScanFull     ScanReason = "all"      // the first scan, lost events, or the periodic resync
	ScanRetry    ScanReason = "retry"    // a scan failed, or a read timed out
	ScanAllocate ScanReason = "allocate" // an Allocate call needs the current state
	ScanConfig   ScanReason = "config"   // a new configuration needs more to be scanned
)

// eventMetrics are the metrics that a call of Metrics updates, unlike the gauges of a
// Status. Labels are in alphabetical order.
var eventMetrics = map[string]family{
	configLoadsTotal:   {kind: "counter", help: "Configuration loads, the one at start included, by result: ok or error.", labels: []string{"result"}},
	registrationsTotal: {kind: "counter", help: "Registrations accepted by the kubelet, by reason.", labels: []string{"reason", "resource"}},
	refusalsTotal:      {kind: "counter", help: "Failed registration attempts.", labels: []string{"resource"}},
	allocationsTotal:   {kind: "counter", help: "Allocate calls by result: ok or error.", labels: []string{"resource", "result"}},
	sliceWritesTotal:   {kind: "counter", help: "Writes of ResourceSlices to the API server by result: ok or error.", labels: []string{"result"}},
	scansTotal:         {kind: "counter", help: "Scans of the host by reason: uevent, names, all, retry, allocate or config.", labels: []string{"reason"}},
	scanFailuresTotal:  {kind: "counter", help: "Failed scans; the last snapshot stays in use."},
	ueventsTotal:       {kind: "counter", help: "Devices announced by uevents, once per scan."},
	allocationSeconds: {kind: "histogram", help: "Duration of Allocate calls.", labels: []string{"resource"},
		bounds: []float64{.0005, .001, .005, .01, .05, .1, .5, 1}},
	evictionsTotal: {kind: "counter", help: "Requested evictions of pods by result: ok, blocked or error.", labels: []string{"result"}},
	scanSeconds:    {kind: "histogram", help: "Duration of scans of the host.", bounds: []float64{.001, .005, .01, .05, .1, .5, 1}},
}

// Metrics counts events and serves them with the gauges of a Node. A nil *Metrics
// counts nothing.
type Metrics struct {
	state     State
	node      Node          // nil in a program without devices
	rendering chan struct{} // semaphore: one Status at a time is rendered and sent

	mu     sync.Mutex
	events exposition
}

// New returns the metrics of a process that serves state.
func New(state State) *Metrics {
	m := &Metrics{state: state, rendering: make(chan struct{}, 1), events: exposition{}}
	m.node, _ = state.(Node)
	for name, f := range eventMetrics {
		f := m.events.add(name, f)
		if m.node != nil && len(f.labels) == 0 {
			f.with() // present from the start
		}
	}
	return m
}

// add adds to a counter, or observes a value of a histogram.
func (m *Metrics) add(name string, value float64, labels ...string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.events[name]
	f.with(labels...).add(value, f.bounds)
}

// CountLoad counts a load of the configuration; err is set if it is broken.
func (m *Metrics) CountLoad(err error) { m.add(configLoadsTotal, 1, result(err)) }

// CountRegistration counts a registration that the kubelet accepted.
func (m *Metrics) CountRegistration(resource, reason string) {
	m.add(registrationsTotal, 1, reason, resource)
}

// CountRefusal counts a failed registration.
func (m *Metrics) CountRefusal(resource string) { m.add(refusalsTotal, 1, resource) }

// CountAllocation counts an Allocate call.
func (m *Metrics) CountAllocation(resource string, took time.Duration, err error) {
	m.add(allocationsTotal, 1, resource, result(err))
	m.add(allocationSeconds, took.Seconds(), resource)
}

// CountSliceWrite counts a write of a ResourceSlice.
func (m *Metrics) CountSliceWrite(err error) { m.add(sliceWritesTotal, 1, result(err)) }

// CountScan counts a scan of the host: its reason, the devices that uevents
// announced, and its duration or failure.
func (m *Metrics) CountScan(reason ScanReason, uevents int, took time.Duration, err error) {
	m.add(scansTotal, 1, string(reason))
	m.add(ueventsTotal, float64(uevents))
	if err != nil {
		m.add(scanFailuresTotal, 1)
	} else {
		m.add(scanSeconds, took.Seconds())
	}
}

// CountEvictions counts n requests to evict a pod: "ok", "blocked" by a disruption budget, or
// "error".
func (m *Metrics) CountEvictions(n int, result string) { m.add(evictionsTotal, float64(n), result) }

// Forget drops the counters of a removed resource.
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

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// gauges are the metrics of a Status.
func gauges(s Status) exposition {
	all := exposition{}
	type set func(v float64, labels ...string)
	metric := func(kind, name, help string, labels []string) set {
		f := all.add(name, family{kind: kind, help: help, labels: labels})
		return func(v float64, values ...string) { f.with(values...).value = v }
	}
	gauge := func(name, help string, labels ...string) set { return metric("gauge", name, help, labels) }
	gauge("generic_dp_build_info", "Build information; always 1.", "goversion", "version")(1, runtime.Version(), s.Version)
	gauge("generic_dp_ready", "1 if every resource with devices is registered, or its CDI specs are written.")(boolValue(len(s.NotReady) == 0))
	gauge("generic_dp_problems", "Current problems on this host; the log and the status page list them.")(float64(len(s.Problems)))
	leftOut := gauge("generic_dp_left_out_devices", "Devices that are not listed, or not with all their slots, since the lists have no room: present ones, and absent ones that only the kubelet knows, as held.", "state")
	leftOut(float64(s.LeftOut.Devices), "present")
	leftOut(float64(s.LeftOut.Held), "held")
	metric("counter", "generic_dp_left_out_absent_slots_total", "Slots of absent devices that left the lists before their time, since the lists have no room.", nil)(float64(s.LeftOut.AbsentSlots))
	gauge("generic_dp_config_info", "Hash of the served configuration; always 1.", "hash")(1, s.Config.Hash)
	gauge("generic_dp_config_last_load_successful", "1 if the configuration on disk is served, 0 if the last good one is.")(boolValue(s.Config.Broken == nil))
	gauge("generic_dp_config_last_load_success_timestamp_seconds", "When the served configuration was loaded, in seconds since the epoch.")(float64(s.Config.Loaded.UnixMilli()) / 1000)
	gauge("generic_dp_config_generation", "Configurations served since the start, the current one included.")(float64(s.Config.Generation))
	gauge("generic_dp_config_problems", "Lines of problems in the configuration on disk.")(float64(len(s.Config.Problems)))
	degraded := gauge("generic_dp_events_degraded", "1 for each unavailable event source; meanwhile a full scan runs every minute.", "source")
	for _, d := range s.Degraded {
		degraded(1, d.Subject)
	}
	devices := gauge("generic_dp_devices", "Devices by health.", "health", "resource")
	slots := gauge("generic_dp_slots", "Slots of devices as listed to the kubelet, by health.", "health", "resource")
	optional := func(name, help string) func(n *int, resource string) {
		set := gauge(name, help+"; absent without the PodResources API.", "resource")
		return func(n *int, resource string) {
			if n != nil {
				set(float64(*n), resource)
			}
		}
	}
	slotsHeld := optional("generic_dp_slots_held", "Slots that containers hold")
	slotsFree := optional("generic_dp_slots_free", "Healthy slots that no container holds")
	slotsAllocatable := optional("generic_dp_slots_allocatable", "Slots that the kubelet reports as allocatable, held or not")
	held := gauge("generic_dp_held", "Slot that a container holds; always 1.", "container", "id", "namespace", "pod", "resource")
	registered := gauge("generic_dp_registered", "1 if the resource is registered and its ListAndWatch stream is open.", "resource")
	for _, r := range s.Resources {
		health := map[string]int{Healthy: 0, Unhealthy: 0}
		for _, d := range r.Devices {
			health[d.Health]++
			for _, h := range d.Held {
				held(1, h.Container, h.ID, h.Namespace, h.Pod, r.Title())
			}
		}
		for h, n := range health {
			devices(float64(n), h, r.Title())
		}
		slots(float64(r.Slots.Healthy), Healthy, r.Title())
		slots(float64(r.Slots.Unhealthy), Unhealthy, r.Title())
		slotsHeld(r.Slots.Held, r.Title())
		slotsFree(r.Slots.Free, r.Title())
		slotsAllocatable(r.Slots.Allocatable, r.Title())
		if s.Kubelet != nil {
			registered(boolValue(r.Registered), r.Title())
		}
	}
	if s.Kubelet != nil {
		metric("counter", "generic_dp_kubelet_restarts_total", "Restarts of the kubelet since the start.", nil)(float64(s.Kubelet.Restarts))
	}
	return all
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
