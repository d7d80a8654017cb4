package importer

import "strings"

// nvidia converts configurations of NVIDIA's device plugin: how GPUs are shared.
func (c *conversion) nvidia(sources []source) {
	c.comment("GPUs are those of a CDI specification: nvidia-ctk cdi generate --device-name-strategy=uuid. The containers need no NVIDIA runtime, and serving needs --allow=cdi:nvidia.com/gpu,env.")
	c.comment("Not imported: health from XID errors, and flags other than migStrategy.")
	for _, s := range sources {
		r := &resource{Name: c.domainOr("nvidia.com") + "/gpu", Identity: "name", Match: []match{{CDIDevice: "nvidia.com/gpu=GPU-*"}}}
		if s.file != "" && len(sources) > 1 {
			r.comment("For nodes with the label nvidia.com/device-plugin.config=" + s.file + ".")
		}
		var config struct {
			Flags, Resources, Sharing, Version, Imex, Health *value
		}
		s.decode(&config)
		if mig := config.Flags.get("migStrategy").string(); mig != "" && mig != "none" {
			r.differs(s.value, "not imported: flags: migStrategy = %q: MIG devices are MIG-* in cdi_device", mig)
		}
		if config.Resources != nil {
			r.differs(s.value, "not imported: resources: other names of GPUs")
		}
		strategy := config.Sharing.get("timeSlicing")
		if mps := config.Sharing.get("mps"); mps != nil {
			strategy = mps
			r.differs(s.value, "differs: without MPS: containers share a GPU as with timeSlicing, without limits of memory and threads")
		}
		var sharing struct {
			RenameByDefault, FailRequestsGreaterThanOne bool
			Resources                                   []*value
		}
		if strategy != nil {
			sharing.FailRequestsGreaterThanOne = config.Sharing.get("mps") != nil // the default of each strategy
			strategy.decode(&sharing)
		}
		if sharing.FailRequestsGreaterThanOne {
			r.differs(s.value, "differs: failRequestsGreaterThanOne: a container may get one slot of each of several GPUs")
			r.Container.MaxPerContainer = 1
		}
		count := 0
		for _, e := range sharing.Resources {
			var shared struct {
				Name     string
				Replicas int
				Rename   string
				Devices  *value
			}
			e.decode(&shared)
			switch name := strings.TrimPrefix(shared.Name, "nvidia.com/"); {
			case name != "gpu":
				r.differs(e, "not imported: CDI names of MIG devices have no profile: list those of %q in cdi_device", name)
				continue
			case count > 0:
				r.differs(e, "not imported: GPUs are shared by an earlier entry")
				continue
			}
			count = shared.Replicas
			if shared.Rename == "" && sharing.RenameByDefault && count > 1 {
				shared.Rename = "gpu.shared"
			}
			if shared.Rename != "" {
				r.Name = c.domainOr("nvidia.com") + "/" + strings.TrimPrefix(shared.Rename, "nvidia.com/")
			}
			if shared.Devices != nil && shared.Devices.string() != "all" {
				r.differs(shared.Devices, "not imported: all GPUs are shared")
			}
		}
		r.Container.Env = map[string]any{"NVIDIA_VISIBLE_DEVICES": "${cdi.device}"}
		r.setCount(s.value, count)
		c.add(s.value, r, s.workload)
	}
}
