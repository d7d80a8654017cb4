package metrics

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// counters are all counters, with their labels.
var counters = []struct {
	name, help string
	labels     []string
}{
	{ConfigLoadsTotal, "Configuration loads, the one at start included, by result: ok or error.", []string{"result"}},
	{RegistrationsTotal, "Registrations accepted by the kubelet, by reason.", []string{"resource", "reason"}},
	{RefusalsTotal, "Failed registration attempts.", []string{"resource"}},
	{AllocationsTotal, "Allocate calls by result: ok or error.", []string{"resource", "result"}},
	{ScansTotal, "Scans of the host by reason: uevent, names, all, retry, allocate or config.", []string{"reason"}},
	{ScanFailuresTotal, "Failed scans; the last snapshot stays in use.", nil},
	{UeventsTotal, "Devices announced by uevents, once per scan.", nil},
}

// Metrics counts events and serves them with the gauges of a State. A nil *Metrics
// counts nothing.
type Metrics struct {
	state      State
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	allocation *prometheus.HistogramVec
	scan       prometheus.Histogram
}

// New returns the metrics of a process that serves state.
func New(state State) *Metrics {
	m := &Metrics{
		state:    state,
		registry: prometheus.NewRegistry(),
		counters: map[string]*prometheus.CounterVec{},
		allocation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: AllocationSeconds, Help: "Duration of Allocate calls.", Buckets: []float64{.0005, .001, .005, .01, .05, .1, .5, 1},
		}, []string{"resource"}),
		scan: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: ScanSeconds, Help: "Duration of scans of the host.", Buckets: []float64{.001, .005, .01, .05, .1, .5, 1},
		}),
	}
	for _, c := range counters {
		m.counters[c.name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: c.name, Help: c.help}, c.labels)
		m.registry.MustRegister(m.counters[c.name])
		if len(c.labels) == 0 {
			m.count(c.name, 0) // present from the start
		}
	}
	m.registry.MustRegister(m.allocation, m.scan, gauges{state})
	return m
}

func (m *Metrics) count(name string, n int, labels ...string) {
	if m != nil {
		m.counters[name].WithLabelValues(labels...).Add(float64(n))
	}
}

// CountLoad counts a load of the configuration; err is set if it is broken.
func (m *Metrics) CountLoad(err error) { m.count(ConfigLoadsTotal, 1, result(err)) }

// CountRegistration counts a registration that the kubelet accepted.
func (m *Metrics) CountRegistration(resource, reason string) {
	m.count(RegistrationsTotal, 1, resource, reason)
}

// CountRefusal counts a failed registration.
func (m *Metrics) CountRefusal(resource string) { m.count(RefusalsTotal, 1, resource) }

// CountAllocation counts an Allocate call.
func (m *Metrics) CountAllocation(resource string, took time.Duration, err error) {
	m.count(AllocationsTotal, 1, resource, result(err))
	if m != nil {
		m.allocation.WithLabelValues(resource).Observe(took.Seconds())
	}
}

// CountScan counts a scan of the host: its reason, the devices that uevents
// announced, and its duration or failure.
func (m *Metrics) CountScan(reason ScanReason, uevents int, took time.Duration, err error) {
	m.count(ScansTotal, 1, string(reason))
	m.count(UeventsTotal, uevents)
	if err != nil {
		m.count(ScanFailuresTotal, 1)
	} else if m != nil {
		m.scan.Observe(took.Seconds())
	}
}

// Forget drops the counters of a removed resource.
func (m *Metrics) Forget(resource string) {
	if m == nil {
		return
	}
	for _, c := range m.counters {
		c.DeletePartialMatch(prometheus.Labels{"resource": resource})
	}
	m.allocation.DeletePartialMatch(prometheus.Labels{"resource": resource})
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// gauges reads the state at scrape time. As an unchecked collector it declares each
// family where it is set.
type gauges struct{ state State }

func (gauges) Describe(chan<- *prometheus.Desc) {}

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	type set func(v float64, labels ...string)
	family := func(t prometheus.ValueType, name, help string, labels ...string) set {
		desc := prometheus.NewDesc(name, help, labels, nil)
		return func(v float64, values ...string) { ch <- prometheus.MustNewConstMetric(desc, t, v, values...) }
	}
	gauge := func(name, help string, labels ...string) set {
		return family(prometheus.GaugeValue, name, help, labels...)
	}
	s := g.state.Status(context.Background()) // it does not block for long
	gauge(BuildInfo, "Build information; always 1.", "version", "goversion")(1, s.Version, runtime.Version())
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
	devices := gauge(Devices, "Devices by health.", "resource", "health")
	slots := gauge(SlotsByHealth, "Slots of devices as listed to the kubelet, by health.", "resource", "health")
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
	held := gauge(Held, "Slot that a container holds; always 1.", "resource", "id", "namespace", "pod", "container")
	registered := gauge(Registered, "1 if the resource is registered and its ListAndWatch stream is open.", "resource")
	for _, r := range s.Resources {
		health := map[string]int{Healthy: 0, Unhealthy: 0}
		for _, d := range r.Devices {
			health[d.Health]++
			for _, h := range d.Held {
				held(1, r.Name, h.ID, h.Namespace, h.Pod, h.Container)
			}
		}
		for h, n := range health {
			devices(float64(n), r.Name, h)
		}
		slots(float64(r.Slots.Healthy), r.Name, Healthy)
		slots(float64(r.Slots.Unhealthy), r.Name, Unhealthy)
		slotsHeld(r.Slots.Held, r.Name)
		slotsFree(r.Slots.Free, r.Name)
		slotsAllocatable(r.Slots.Allocatable, r.Name)
		if s.Kubelet != nil {
			registered(number(r.Registered), r.Name)
		}
	}
	if s.Kubelet != nil {
		family(prometheus.CounterValue, KubeletRestartsTotal, "Restarts of the kubelet since the start.")(float64(s.Kubelet.Restarts))
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
