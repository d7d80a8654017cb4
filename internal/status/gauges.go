package status

import "runtime"

// gauges are the metrics of a Status. They also have a counter that the program counts anyway. They
// are made for one scrape and then dropped, so that a resource that is gone leaves no sample.
func gauges(s Status) exposition {
	e := exposition{}
	e.gauge("generic_dp_build_info", "Build information; always 1.", 1,
		"goversion", runtime.Version(), "version", s.Version)
	e.gauge("generic_dp_ready",
		"1 if every resource with devices is registered, or its CDI specs are written.", number(len(s.NotReady) == 0))
	e.gauge("generic_dp_problems",
		"Current problems on this host; the log and the status page list them.", float64(len(s.Problems)))
	for _, d := range s.Degraded {
		e.gauge("generic_dp_events_degraded",
			"1 for each unavailable event source; meanwhile a full scan runs every minute.", 1, "source", d.Subject)
	}
	if s.Kubelet != nil {
		e.sample(kubeletRestarts).value = float64(s.Kubelet.Restarts)
	}
	e.gauge("generic_dp_config_info", "Hash of the served configuration; always 1.", 1, "hash", s.Config.Hash)
	e.gauge("generic_dp_config_last_load_successful",
		"1 if the configuration on disk is served, 0 if the last good one is.", number(s.Config.Broken == nil))
	e.gauge("generic_dp_config_last_load_success_timestamp_seconds",
		"When the served configuration was loaded, in seconds since the epoch.", float64(s.Config.Loaded.UnixMilli())/1000)
	for i := range s.Resources {
		e.addResource(&s.Resources[i], s.Kubelet != nil)
	}
	return e
}

var kubeletRestarts = family{"generic_dp_kubelet_restarts_total", "counter", "Restarts of the kubelet since the start."}

// addResource adds the state of a resource. The holders are unknown without the PodResources API. An
// unknown value is absent, because zero would be wrong.
func (e exposition) addResource(r *Resource, hasKubelet bool) {
	name := r.Title()
	devices := map[string]int{Healthy: 0, Unhealthy: 0}
	for _, d := range r.Devices {
		devices[d.Health]++
	}
	for health, n := range devices {
		e.gauge("generic_dp_devices", "Devices by health.", float64(n), "health", health, "resource", name)
	}
	slots := map[string]int{Healthy: r.Slots.Healthy, Unhealthy: r.Slots.Unhealthy}
	if r.Slots.Retiring > 0 {
		slots[Retiring] = r.Slots.Retiring
	}
	for health, n := range slots {
		e.gauge("generic_dp_slots", "Slots of listed devices by health.", float64(n), "health", health, "resource", name)
	}
	if r.Slots.Held != nil {
		e.gauge("generic_dp_slots_held",
			"Slots that containers hold; absent without the PodResources API.", float64(*r.Slots.Held), "resource", name)
	}
	if r.Slots.Free != nil {
		e.gauge("generic_dp_slots_free",
			"Healthy slots that no container holds; absent without the PodResources API.", float64(*r.Slots.Free), "resource", name)
	}
	for _, d := range r.Devices {
		for _, h := range d.Held {
			e.gauge("generic_dp_held", "Slot that a container holds; always 1.", 1,
				"container", h.Container, "id", h.ID, "namespace", h.Namespace, "pod", h.Pod, "resource", name)
		}
	}
	if hasKubelet {
		e.gauge("generic_dp_registered",
			"1 if the resource is registered and its ListAndWatch stream is open.", number(r.Registered), "resource", name)
	}
}

// number is 1 or 0.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
