package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The names of the metrics. Labels are called as in the configuration, the
// log and the columns of `devices`.
const (
	BuildInfo          = "generic_dp_build_info"
	ConfigInfo         = "generic_dp_config_info"
	ConfigOK           = "generic_dp_config_last_load_successful"
	ConfigSeconds      = "generic_dp_config_last_load_success_timestamp_seconds"
	ConfigLoadsTotal   = "generic_dp_config_loads_total"
	Devices            = "generic_dp_devices"
	Registered         = "generic_dp_registered"
	RegistrationsTotal = "generic_dp_registrations_total"
	RefusalsTotal      = "generic_dp_registration_refusals_total"
	AllocationsTotal   = "generic_dp_allocations_total"
	AllocationSeconds  = "generic_dp_allocation_duration_seconds"
	ScanSeconds        = "generic_dp_scan_duration_seconds"
	ScanFailuresTotal  = "generic_dp_scan_failures_total"
	EventsDegraded     = "generic_dp_events_degraded"
)

// Config is the configuration that is served.
type Config struct {
	// Hash of its text, see config.Config.
	Hash string
	// Loaded is when it was taken over.
	Loaded time.Time
	// Broken is why it is the last good one and not the one on disk; nil where
	// it is that.
	Broken error
}

// Resource is how one resource is at the moment of a scrape.
type Resource struct {
	Name               string
	Healthy, Unhealthy int // slots
	Registered         bool
}

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
}

// New makes the metrics of a process that serves state.
func New(version string, state State) *Metrics {
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
	}
	m.registry.MustRegister(m.loads, m.registrations, m.refusals, m.allocations, m.allocation, m.scan, m.scanFailures, gauges{version, state})
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

// CountScan takes down a scan of the host.
func (m *Metrics) CountScan(took time.Duration, err error) {
	switch {
	case m == nil:
	case err != nil:
		m.scanFailures.Inc()
	default:
		m.scan.Observe(took.Seconds())
	}
}

// gauges reads what is true at the moment of a scrape.
type gauges struct {
	version string
	state   State
}

var (
	buildInfo  = prometheus.NewDesc(BuildInfo, "Always 1; the version is a label.", []string{"version"}, nil)
	configInfo = prometheus.NewDesc(ConfigInfo, "Always 1; the hash of the configuration that is served is a label.", []string{"hash"}, nil)
	configTime = prometheus.NewDesc(ConfigSeconds, "When the configuration that is served was taken over, in seconds since the epoch.", nil, nil)
	configOK   = prometheus.NewDesc(ConfigOK, "1 if the configuration on disk is the one that is served, 0 if the last good one is.", nil, nil)
	devices    = prometheus.NewDesc(Devices, "Slots of devices as the kubelet is shown them.", []string{"resource", "health"}, nil)
	registered = prometheus.NewDesc(Registered, "1 if the kubelet has the resource and keeps its stream open.", []string{"resource"}, nil)
	degraded   = prometheus.NewDesc(EventsDegraded, "1 for each source of events that is not to be had: everything is looked at each minute then.", []string{"source"}, nil)
)

func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{buildInfo, configInfo, configTime, configOK, devices, registered, degraded} {
		ch <- d
	}
}

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	set(buildInfo, 1, g.version)
	config := g.state.Config()
	set(configInfo, 1, config.Hash)
	set(configTime, float64(config.Loaded.UnixMilli())/1000)
	set(configOK, number(config.Broken == nil))
	for _, r := range g.state.Resources() {
		set(devices, float64(r.Healthy), r.Name, "Healthy")
		set(devices, float64(r.Unhealthy), r.Name, "Unhealthy")
		set(registered, number(r.Registered), r.Name)
	}
	for _, source := range g.state.Degraded() {
		set(degraded, 1, source)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
