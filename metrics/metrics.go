package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The names of the metrics. Labels are called as in the configuration, the
// log and the columns of `devices`.
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
	ScanMounts   ScanReason = "mounts"   // the host mounted or unmounted a disk
	ScanFull     ScanReason = "all"      // the first scan, lost events, or the periodic resync
	ScanRetry    ScanReason = "retry"    // a scan failed, or a read timed out
	ScanAllocate ScanReason = "allocate" // an Allocate call needs the current state
	ScanConfig   ScanReason = "config"   // a new configuration needs what was not scanned
)

// Metrics counts what happens and shows it, with what State says, to whoever
// scrapes. A nil *Metrics counts nothing.
type Metrics struct {
	state         State
	registry      *prometheus.Registry
	loads         *prometheus.CounterVec
	registrations *prometheus.CounterVec
	refusals      *prometheus.CounterVec
	allocations   *prometheus.CounterVec
	allocation    *prometheus.HistogramVec
	scan          prometheus.Histogram
	scanFailures  prometheus.Counter
	scans         *prometheus.CounterVec
	uevents       prometheus.Counter
}

// New makes the metrics of a process that serves state.
func New(state State) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		state:         state,
		registry:      prometheus.NewRegistry(),
		loads:         counter(ConfigLoadsTotal, "Times that the configuration was read because it had changed, the start included, by result: ok or error.", "result"),
		registrations: counter(RegistrationsTotal, "Registrations that the kubelet accepted, by what made them necessary.", "resource", "reason"),
		refusals:      counter(RefusalsTotal, "Attempts to register that failed.", "resource"),
		allocations:   counter(AllocationsTotal, "Allocate calls of the kubelet, by result: ok or error.", "resource", "result"),
		allocation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: AllocationSeconds, Help: "Time to answer an Allocate call.", Buckets: []float64{.0005, .001, .005, .01, .05, .1, .5, 1},
		}, []string{"resource"}),
		scan: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: ScanSeconds, Help: "Time to read the host once.", Buckets: []float64{.001, .005, .01, .05, .1, .5, 1},
		}),
		scanFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: ScanFailuresTotal, Help: "Scans that failed; what was seen last is kept.",
		}),
		scans: counter(ScansTotal, "Scans of the host by reason: uevent, names, mounts, all, retry, allocate or config.", "reason"),
		uevents: prometheus.NewCounter(prometheus.CounterOpts{
			Name: UeventsTotal, Help: "Devices that the kernel told of, each once for a look.",
		}),
	}
	m.registry.MustRegister(m.loads, m.registrations, m.refusals, m.allocations, m.allocation, m.scan, m.scanFailures, m.scans, m.uevents, gauges{state})
	return m
}

// CountLoad takes down that the configuration was read, and err if it is broken.
func (m *Metrics) CountLoad(err error) {
	if m != nil {
		m.loads.WithLabelValues(result(err)).Inc()
	}
}

// Forget drops what was counted of a resource that is offered no more.
func (m *Metrics) Forget(resource string) {
	if m == nil {
		return
	}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.registrations, m.refusals, m.allocations, m.allocation} {
		v.DeletePartialMatch(prometheus.Labels{"resource": resource})
	}
}

// CountRegistration takes down a registration that the kubelet accepted.
func (m *Metrics) CountRegistration(resource, reason string) {
	if m != nil {
		m.registrations.WithLabelValues(resource, reason).Inc()
	}
}

// CountRefusal takes down a registration that failed.
func (m *Metrics) CountRefusal(resource string) {
	if m != nil {
		m.refusals.WithLabelValues(resource).Inc()
	}
}

// CountAllocation takes down an Allocate call.
func (m *Metrics) CountAllocation(resource string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.allocations.WithLabelValues(resource, result(err)).Inc()
	m.allocation.WithLabelValues(resource).Observe(took.Seconds())
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// CountScan counts a scan of the host: its reason, the devices that uevents
// announced, and its duration or failure.
func (m *Metrics) CountScan(reason ScanReason, uevents int, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.scans.WithLabelValues(string(reason)).Inc()
	m.uevents.Add(float64(uevents))
	if err != nil {
		m.scanFailures.Inc()
		return
	}
	m.scan.Observe(took.Seconds())
}
