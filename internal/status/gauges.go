package status

import "runtime"

// gauges are the metrics of a Status. They also have counters that the program counts anyway. They
// are made for one scrape and then dropped, so that a resource that is gone leaves no sample.
func gauges(s Status) exposition {
	e := exposition{}
	e.addProgram(s)
	e.addLeftOut(s.LeftOut)
	e.addConfig(s.Config)
	e.addResources(s)
	return e
}

// gauge adds a gauge, without samples.
func (e exposition) gauge(name, help string, labels ...string) *series {
	return e.add(family{
		name:   name,
		kind:   "gauge",
		help:   help,
		labels: labels,
	})
}

// counter adds a counter, without samples.
func (e exposition) counter(name, help string) *series {
	return e.add(family{
		name: name,
		kind: "counter",
		help: help,
	})
}

// addProgram adds the state of the process, the host and the kubelet.
func (e exposition) addProgram(s Status) {
	build := e.gauge("generic_dp_build_info", "Build information; always 1.", "goversion", "version")
	build.set(1, runtime.Version(), s.Version)
	ready := e.gauge("generic_dp_ready",
		"1 if every resource with devices is registered, or its CDI specs are written.")
	ready.setBool(len(s.NotReady) == 0)
	problems := e.gauge("generic_dp_problems",
		"Current problems on this host; the log and the status page list them.")
	problems.setInt(len(s.Problems))
	degraded := e.gauge("generic_dp_events_degraded",
		"1 for each unavailable event source; meanwhile a full scan runs every minute.", "source")
	for _, d := range s.Degraded {
		degraded.set(1, d.Subject)
	}
	if s.Kubelet != nil {
		restarts := e.counter("generic_dp_kubelet_restarts_total",
			"Restarts of the kubelet since the start.")
		restarts.setInt(s.Kubelet.Restarts)
	}
}

// addLeftOut adds what the lists have no room for.
func (e exposition) addLeftOut(l LeftOut) {
	devices := e.gauge("generic_dp_left_out_devices",
		"Devices that are not listed with all their slots, because the lists have no room: present devices, and held devices that only the kubelet knows.", "state")
	devices.setInt(l.Devices, "present")
	devices.setInt(l.Held, "held")
	slots := e.counter("generic_dp_left_out_absent_slots_total",
		"Slots of absent devices that left the lists early, because the lists have no room.")
	slots.setInt(l.AbsentSlots)
}

// addConfig adds the state of the configuration.
func (e exposition) addConfig(c Config) {
	info := e.gauge("generic_dp_config_info", "Hash of the served configuration; always 1.", "hash")
	info.set(1, c.Hash)
	success := e.gauge("generic_dp_config_last_load_successful",
		"1 if the configuration on disk is served, 0 if the last good one is.")
	success.setBool(c.Broken == nil)
	loaded := e.gauge("generic_dp_config_last_load_success_timestamp_seconds",
		"When the served configuration was loaded, in seconds since the epoch.")
	seconds := float64(c.Loaded.UnixMilli()) / 1000
	loaded.set(seconds)
	generation := e.gauge("generic_dp_config_generation",
		"Number of configurations served since the start, including the current one.")
	generation.setInt(c.Generation)
	problems := e.gauge("generic_dp_config_problems",
		"Lines of problems in the configuration on disk.")
	problems.setInt(len(c.Problems))
}

// addResources adds the state of each resource. The holders are unknown without the PodResources
// API. An unknown value is absent, because zero would be wrong.
func (e exposition) addResources(s Status) {
	const needsAPI = "; absent without the PodResources API."
	devices := e.gauge("generic_dp_devices", "Devices by health.", "health", "resource")
	slots := e.gauge("generic_dp_slots", "Slots of listed devices by health.", "health", "resource")
	slotsHeld := e.gauge("generic_dp_slots_held", "Slots that containers hold"+needsAPI, "resource")
	slotsFree := e.gauge("generic_dp_slots_free",
		"Healthy slots that no container holds"+needsAPI, "resource")
	allocatable := e.gauge("generic_dp_slots_allocatable",
		"Slots that the kubelet reports as allocatable, held or not"+needsAPI, "resource")
	held := e.gauge("generic_dp_held", "Slot that a container holds; always 1.",
		"container", "id", "namespace", "pod", "resource")
	registered := e.gauge("generic_dp_registered",
		"1 if the resource is registered and its ListAndWatch stream is open.", "resource")
	for _, r := range s.Resources {
		name := r.Title()
		for health, n := range r.devicesByHealth() {
			devices.setInt(n, health, name)
		}
		slots.setInt(r.Slots.Healthy, Healthy, name)
		slots.setInt(r.Slots.Unhealthy, Unhealthy, name)
		if r.Slots.Retiring > 0 {
			slots.setInt(r.Slots.Retiring, Retiring, name)
		}
		slotsHeld.setIfKnown(r.Slots.Held, name)
		slotsFree.setIfKnown(r.Slots.Free, name)
		allocatable.setIfKnown(r.Slots.Allocatable, name)
		for _, d := range r.Devices {
			for _, h := range d.Held {
				held.set(1, h.Container, h.ID, h.Namespace, h.Pod, name)
			}
		}
		if s.Kubelet != nil {
			registered.setBool(r.Registered, name)
		}
	}
}

// devicesByHealth counts the devices. Healthy and Unhealthy are always present.
func (r *Resource) devicesByHealth() map[string]int {
	count := map[string]int{
		Healthy:   0,
		Unhealthy: 0,
	}
	for _, d := range r.Devices {
		count[d.Health]++
	}
	return count
}
