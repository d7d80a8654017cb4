package metrics

import (
	"runtime"
	"sync"
	"time"
)

// The names of the metrics. Labels are named like the configuration keys, the log
// keys and the columns of `devices`.
const (
	BuildInfo            = "generic_dp_build_info"
	ConfigInfo           = "generic_dp_config_info"
	ConfigOK             = "generic_dp_config_last_load_successful"
	ConfigSeconds        = "generic_dp_config_last_load_success_timestamp_seconds"
	ConfigLoadsTotal     = "generic_dp_config_loads_total"
	ConfigGeneration     = "generic_dp_config_generation"
	ConfigProblems       = "generic_dp_config_problems"
	Ready                = "generic_dp_ready"
	Devices              = "generic_dp_devices"
	SlotsByHealth        = "generic_dp_slots"
	SlotsHeld            = "generic_dp_slots_held"
	SlotsFree            = "generic_dp_slots_free"
	SlotsAllocatable     = "generic_dp_slots_allocatable"
	Held                 = "generic_dp_held"
	Registered           = "generic_dp_registered"
	RegistrationsTotal   = "generic_dp_registrations_total"
	RefusalsTotal        = "generic_dp_registration_refusals_total"
	KubeletRestartsTotal = "generic_dp_kubelet_restarts_total"
	AllocationsTotal     = "generic_dp_allocations_total"
	AllocationSeconds    = "generic_dp_allocation_duration_seconds"
	ScansTotal           = "generic_dp_looks_total"
	UeventsTotal         = "generic_dp_uevents_total"
	ScanSeconds          = "generic_dp_scan_duration_seconds"
	ScanFailuresTotal    = "generic_dp_scan_failures_total"
	EventsDegraded       = "generic_dp_events_degraded"
	Problems             = "generic_dp_problems"
)

// ScanReason is what requested a scan of the host.
type ScanReason string

// The values of the label reason of ScansTotal.
const (
	ScanUevent   ScanReason = "uevent"   // the kernel announced changed devices
	ScanNames    ScanReason = "names"    // names below /dev changed
	ScanFull     ScanReason = "all"      // the first scan, lost events, or the periodic resync
	ScanRetry    ScanReason = "retry"    // a scan failed, or a read timed out
	ScanAllocate ScanReason = "allocate" // an Allocate call needs the current state
	ScanConfig   ScanReason = "config"   // a new configuration needs what was not scanned
)

// counted are the metrics that are counted as things happen; labels are in
// alphabetical order.
var counted = map[string]family{
	ConfigLoadsTotal:   {kind: "counter", help: "Configuration loads, the one at start included, by result: ok or error.", labels: []string{"result"}},
	RegistrationsTotal: {kind: "counter", help: "Registrations accepted by the kubelet, by reason.", labels: []string{"reason", "resource"}},
	RefusalsTotal:      {kind: "counter", help: "Failed registration attempts.", labels: []string{"resource"}},
	AllocationsTotal:   {kind: "counter", help: "Allocate calls by result: ok or error.", labels: []string{"resource", "result"}},
	ScansTotal:         {kind: "counter", help: "Scans of the host by reason: uevent, names, all, retry, allocate or config.", labels: []string{"reason"}},
	ScanFailuresTotal:  {kind: "counter", help: "Failed scans; the last snapshot stays in use."},
	UeventsTotal:       {kind: "counter", help: "Devices announced by uevents, once per scan."},
	AllocationSeconds: {kind: "histogram", help: "Duration of Allocate calls.", labels: []string{"resource"},
		bounds: []float64{.0005, .001, .005, .01, .05, .1, .5, 1}},
	ScanSeconds: {kind: "histogram", help: "Duration of scans of the host.", bounds: []float64{.001, .005, .01, .05, .1, .5, 1}},
}

// Metrics counts events and serves them with the gauges of a State. A nil *Metrics
// counts nothing.
type Metrics struct {
	state State
	turn  chan struct{} // held while a Status is rendered and sent

	mu      sync.Mutex
	counted exposition
}

// New returns the metrics of a process that serves state.
func New(state State) *Metrics {
	m := &Metrics{state: state, turn: make(chan struct{}, 1), counted: exposition{}}
	for name, f := range counted {
		f := m.counted.family(name, f)
		if len(f.labels) == 0 {
			f.sample() // present from the start
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
	m.counted[name].sample(labels...).add(value, m.counted[name].bounds)
}

// CountLoad counts a load of the configuration; err is set if it is broken.
func (m *Metrics) CountLoad(err error) { m.add(ConfigLoadsTotal, 1, result(err)) }

// CountRegistration counts a registration that the kubelet accepted.
func (m *Metrics) CountRegistration(resource, reason string) {
	m.add(RegistrationsTotal, 1, reason, resource)
}

// CountRefusal counts a failed registration.
func (m *Metrics) CountRefusal(resource string) { m.add(RefusalsTotal, 1, resource) }

// CountAllocation counts an Allocate call.
func (m *Metrics) CountAllocation(resource string, took time.Duration, err error) {
	m.add(AllocationsTotal, 1, resource, result(err))
	m.add(AllocationSeconds, took.Seconds(), resource)
}

// CountScan counts a scan of the host: its reason, the devices that uevents
// announced, and its duration or failure.
func (m *Metrics) CountScan(reason ScanReason, uevents int, took time.Duration, err error) {
	m.add(ScansTotal, 1, string(reason))
	m.add(UeventsTotal, float64(uevents))
	if err != nil {
		m.add(ScanFailuresTotal, 1)
	} else {
		m.add(ScanSeconds, took.Seconds())
	}
}

// Forget drops the counters of a removed resource.
func (m *Metrics) Forget(resource string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.counted {
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
		f := all.family(name, family{kind: kind, help: help, labels: labels})
		return func(v float64, values ...string) { f.sample(values...).value = v }
	}
	gauge := func(name, help string, labels ...string) set { return metric("gauge", name, help, labels) }
	gauge(BuildInfo, "Build information; always 1.", "goversion", "version")(1, runtime.Version(), s.Version)
	gauge(Ready, "1 if every resource with devices is registered, or its CDI specs are written.")(number(len(s.NotReady) == 0))
	gauge(Problems, "Current problems on this host; the log and the status page list them.")(float64(len(s.Problems)))
	gauge(ConfigInfo, "Hash of the served configuration; always 1.", "hash")(1, s.Config.Hash)
	gauge(ConfigOK, "1 if the configuration on disk is served, 0 if the last good one is.")(number(s.Config.Broken == nil))
	gauge(ConfigSeconds, "When the served configuration was loaded, in seconds since the epoch.")(float64(s.Config.Loaded.UnixMilli()) / 1000)
	gauge(ConfigGeneration, "Configurations served since the start, the current one included.")(float64(s.Config.Generation))
	gauge(ConfigProblems, "Lines of problems in the configuration on disk.")(float64(len(s.Config.Problems)))
	degraded := gauge(EventsDegraded, "1 for each unavailable event source; meanwhile a full scan runs every minute.", "source")
	for _, d := range s.Degraded {
		degraded(1, d.Subject)
	}
	devices := gauge(Devices, "Devices by health.", "health", "resource")
	slots := gauge(SlotsByHealth, "Slots of devices as listed to the kubelet, by health.", "health", "resource")
	known := func(name, help string) func(n *int, resource string) {
		set := gauge(name, help+"; absent without the PodResources API.", "resource")
		return func(n *int, resource string) {
			if n != nil {
				set(float64(*n), resource)
			}
		}
	}
	slotsHeld := known(SlotsHeld, "Slots that containers hold")
	slotsFree := known(SlotsFree, "Healthy slots that no container holds")
	slotsAllocatable := known(SlotsAllocatable, "Slots that the kubelet reports as allocatable, held or not")
	held := gauge(Held, "Slot that a container holds; always 1.", "container", "id", "namespace", "pod", "resource")
	registered := gauge(Registered, "1 if the resource is registered and its ListAndWatch stream is open.", "resource")
	for _, r := range s.Resources {
		health := map[string]int{Healthy: 0, Unhealthy: 0}
		for _, d := range r.Devices {
			health[d.Health]++
			for _, h := range d.Held {
				held(1, h.Container, h.ID, h.Namespace, h.Pod, r.Name)
			}
		}
		for h, n := range health {
			devices(float64(n), h, r.Name)
		}
		slots(float64(r.Slots.Healthy), Healthy, r.Name)
		slots(float64(r.Slots.Unhealthy), Unhealthy, r.Name)
		slotsHeld(r.Slots.Held, r.Name)
		slotsFree(r.Slots.Free, r.Name)
		slotsAllocatable(r.Slots.Allocatable, r.Name)
		if s.Kubelet != nil {
			registered(number(r.Registered), r.Name)
		}
	}
	if s.Kubelet != nil {
		metric("counter", KubeletRestartsTotal, "Restarts of the kubelet since the start.", nil)(float64(s.Kubelet.Restarts))
	}
	return all
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
