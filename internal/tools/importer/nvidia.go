package importer

import "strings"

// nvidiaDomain is the domain of GPUs and MIG devices.
const nvidiaDomain = "nvidia.com"

// nvidiaFormat are configurations of NVIDIA's device plugin: how GPUs are shared.
//
//	version: v1
//	sharing:
//	  timeSlicing:
//	    renameByDefault: false
//	    resources:
//	    - name: nvidia.com/gpu
//	      replicas: 10
//
// Time slicing only counts: a GPU with ten replicas runs the work of ten containers in turns,
// as it does with count = 10. MPS starts a daemon that limits memory and threads, which has
// no equivalent.
type nvidiaFormat struct{}

// detect recognizes a configuration by sharing or by the flag for MIG. A configuration with
// neither shares nothing, and needs no import.
func (nvidiaFormat) detect(v *value) bool {
	sharing := v.get("sharing")
	return sharing.has("timeSlicing") || sharing.has("mps") || v.get("flags").has("migStrategy")
}

// convert converts each configuration to a resource of CDI devices. The plugin itself finds
// GPUs by NVML, a library that this program does not load.
func (nvidiaFormat) convert(c *conversion, sources []source) {
	c.comment("The GPUs come from a CDI specification: write it with nvidia-ctk cdi generate --device-name-strategy=uuid. Containers do not need the NVIDIA runtime. Serving needs --allow=cdi:nvidia.com/gpu,env.")
	c.comment("Not imported: health from XID errors, and flags other than migStrategy.")
	for _, s := range sources {
		r := &resource{
			Name: c.domainOr(nvidiaDomain) + "/gpu",
			// The UUID in the name identifies the GPU.
			Identity: "name",
			Match:    []match{{CDIDevice: "nvidia.com/gpu=GPU-*"}},
		}
		if s.file != "" && len(sources) > 1 {
			r.comment("For nodes with the label nvidia.com/device-plugin.config=" + s.file + ".")
		}
		var config struct {
			Flags     *value
			Resources *value
			Sharing   *value
			Version   *value
			Imex      *value
			Health    *value
		}
		s.decode(&config)
		mig := config.Flags.get("migStrategy").string()
		if mig != "" && mig != "none" {
			r.differs(s.value, "not imported: flags: migStrategy = %q: MIG devices are MIG-* in cdi_device", mig)
		}
		if config.Resources != nil {
			r.differs(s.value, "not imported: resources: other names of GPUs")
		}
		count := r.readNVIDIASharing(c, s.value, config.Sharing)
		r.Container.Env = map[string]any{"NVIDIA_VISIBLE_DEVICES": "${cdi.device}"}
		r.setCount(s.value, count)
		c.add(s.value, r, s.workload)
	}
}

// nvidiaSharing is a strategy of sharing.
type nvidiaSharing struct {
	RenameByDefault            bool
	FailRequestsGreaterThanOne bool
	Resources                  []*value
}

// readNVIDIASharing returns the number of containers that share a GPU.
func (r *resource) readNVIDIASharing(c *conversion, at, sharing *value) (count int) {
	strategy := sharing.get("timeSlicing")
	mps := sharing.get("mps")
	if mps != nil {
		strategy = mps
		r.differs(at, "differs: containers share a GPU as with timeSlicing, without the limits of MPS for memory and threads")
	}
	var s nvidiaSharing
	if strategy != nil {
		// The default of MPS is true, the default of time slicing false.
		s.FailRequestsGreaterThanOne = mps != nil
		strategy.decode(&s)
	}
	if s.FailRequestsGreaterThanOne {
		r.differs(at, "differs: failRequestsGreaterThanOne: a container may get one slot of each of several GPUs")
		r.Container.MaxPerContainer = 1
	}
	for _, e := range s.Resources {
		if replicas := r.nvidiaReplicas(c, e, s, count > 0); replicas > 0 {
			count = replicas
		}
	}
	return count
}

// nvidiaReplicas reads an entry of the resources that are shared. It returns 0 if the entry
// cannot be imported.
func (r *resource) nvidiaReplicas(c *conversion, e *value, s nvidiaSharing, isShared bool) int {
	var shared struct {
		Name     string
		Replicas int
		Rename   string
		Devices  *value
	}
	e.decode(&shared)
	name := strings.TrimPrefix(shared.Name, nvidiaDomain+"/")
	if name != "gpu" {
		r.differs(e, "not imported: CDI names of MIG devices have no profile: list the names for %q in cdi_device", name)
		return 0
	}
	if isShared {
		r.differs(e, "not imported: GPUs are shared by an earlier entry")
		return 0
	}
	if shared.Rename == "" && s.RenameByDefault && shared.Replicas > 1 {
		shared.Rename = "gpu.shared"
	}
	if shared.Rename != "" {
		r.Name = c.domainOr(nvidiaDomain) + "/" + strings.TrimPrefix(shared.Rename, nvidiaDomain+"/")
	}
	if shared.Devices != nil && shared.Devices.string() != "all" {
		r.differs(shared.Devices, "not imported: all GPUs are shared")
	}
	return shared.Replicas
}
