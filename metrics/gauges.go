package metrics

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges reads what is true at the moment of a scrape.
type gauges struct{ state State }

// gauge describes one of them.
func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	buildInfo        = gauge(BuildInfo, "Always 1; what was built is in the labels.", "version", "goversion")
	configInfo       = gauge(ConfigInfo, "Always 1; the hash of the configuration that is served is a label.", "hash")
	configTime       = gauge(ConfigSeconds, "When the configuration that is served was taken over, in seconds since the epoch.")
	configOK         = gauge(ConfigOK, "1 if the configuration on disk is the one that is served, 0 if the last good one is.")
	configGeneration = gauge(ConfigGeneration, "How many configurations were served since the start, with the one that is.")
	configProblems   = gauge(ConfigProblems, "Lines of problems of the configuration on disk.")
	ready            = gauge(Ready, "1 if every resource that has devices is registered, or its CDI specs are written.")
	devices          = gauge(Devices, "Devices by their health.", "resource", "health")
	slots            = gauge(SlotsByHealth, "Slots of devices as the kubelet is shown them, by health.", "resource", "health")
	slotsHeld        = gauge(SlotsHeld, "Slots that containers hold; absent where the kubelet does not say.", "resource")
	slotsFree        = gauge(SlotsFree, "Slots that are healthy and that no container holds; absent where the kubelet does not say.", "resource")
	slotsAllocatable = gauge(SlotsAllocatable, "Slots that the kubelet could hand out, held or not, by its own account; absent where it does not say.", "resource")
	held             = gauge(Held, "Always 1: the container holds the slot with this ID.", "resource", "id", "namespace", "pod", "container")
	registered       = gauge(Registered, "1 if the kubelet has the resource and keeps its stream open.", "resource")
	kubeletRestarts  = gauge(KubeletRestartsTotal, "Restarts of the kubelet that were seen.")
	degraded         = gauge(EventsDegraded, "1 for each source of events that is not to be had: everything is looked at each minute then.", "source")
	problems         = gauge(Problems, "Things that can't be read, written or meant on this host; the log and the status page have them.")
)

func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		buildInfo, configInfo, configTime, configOK, configGeneration, configProblems, ready, devices, slots, slotsHeld,
		slotsFree, slotsAllocatable, held, registered, kubeletRestarts, degraded, problems,
	} {
		ch <- d
	}
}

func (g gauges) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	set := func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.GaugeValue, v, labels...) }
	known := func(d *prometheus.Desc, v *int, labels ...string) {
		if v != nil {
			set(d, float64(*v), labels...)
		}
	}
	s := g.state.Status(context.Background()) // it waits for nothing for long
	set(buildInfo, 1, s.Version, runtime.Version())
	set(configInfo, 1, s.Config.Hash)
	set(configTime, float64(s.Config.Loaded.UnixMilli())/1000)
	set(configOK, number(s.Config.Broken == nil))
	set(configGeneration, float64(s.Config.Generation))
	set(configProblems, float64(len(s.Config.Problems)))
	set(ready, number(len(s.NotReady) == 0))
	set(problems, float64(len(s.Problems)))
	for _, r := range s.Resources {
		health := map[string]int{}
		for _, d := range r.Devices {
			health[d.Health]++
			for _, h := range d.Held {
				set(held, 1, r.Name, h.ID, h.Namespace, h.Pod, h.Container)
			}
		}
		set(devices, float64(health[Healthy]), r.Name, Healthy)
		set(devices, float64(health[Unhealthy]), r.Name, Unhealthy)
		set(slots, float64(r.Slots.Healthy), r.Name, Healthy)
		set(slots, float64(r.Slots.Unhealthy), r.Name, Unhealthy)
		known(slotsHeld, r.Slots.Held, r.Name)
		known(slotsFree, r.Slots.Free, r.Name)
		known(slotsAllocatable, r.Slots.Allocatable, r.Name)
		if s.Kubelet != nil {
			set(registered, number(r.Registered), r.Name)
		}
	}
	if s.Kubelet != nil {
		send(kubeletRestarts, prometheus.CounterValue, float64(s.Kubelet.Restarts))
	}
	for _, d := range s.Degraded {
		set(degraded, 1, d.Subject)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
