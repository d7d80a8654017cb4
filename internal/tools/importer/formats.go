package importer

import "slices"

// Format is the plugin or tool that a configuration is for.
type Format string

// The formats.
const (
	// Auto detects the format.
	Auto Format = "auto"
	// Squat is squat/generic-device-plugin.
	Squat Format = "squat"
	// Smarter is smarter-project/smarter-device-manager.
	Smarter Format = "smarter"
	// SRIOV is k8snetworkplumbingwg/sriov-network-device-plugin.
	SRIOV Format = "sriov"
	// RDMA is Mellanox/k8s-rdma-shared-dev-plugin.
	RDMA Format = "rdma"
	// KubeVirt is permittedHostDevices of KubeVirt.
	KubeVirt Format = "kubevirt"
	// Akri is a Configuration of project-akri/akri.
	Akri Format = "akri"
	// NVIDIA is NVIDIA/k8s-device-plugin.
	NVIDIA Format = "nvidia"
	// Compose is a file of Docker Compose, or a command line of docker run.
	Compose Format = "compose"
	// Quadlet is a container unit of Podman (podman-systemd.unit).
	Quadlet Format = "quadlet"
	// Pod is a pod, or an object with a template of pods, with hostPath volumes of devices.
	Pod Format = "pod"
	// Udev is a file of udev rules.
	Udev Format = "udev"
)

// format converts the configurations of one plugin or tool.
type format interface {
	// detect reports whether a value of the input is a configuration of the format.
	detect(v *value) bool
	// convert adds the resources of the configurations, in the order of the input.
	convert(c *conversion, sources []source)
}

// knownFormat is a format with its names.
type knownFormat struct {
	name   Format
	plugin string // in messages
	// plain is set for files that are not configurations of a device plugin. They are only
	// searched for if the input has no configuration of a device plugin: the DaemonSet of a
	// device plugin has a hostPath volume of /dev as well.
	plain bool
	format
}

// formats are the formats other than Auto.
var formats = []knownFormat{
	{Squat, "generic-device-plugin", false, squatFormat{}},
	{Smarter, "smarter-device-manager", false, smarterFormat{}},
	{SRIOV, "sriov-network-device-plugin", false, sriovFormat{}},
	{RDMA, "k8s-rdma-shared-dev-plugin", false, rdmaFormat{}},
	{KubeVirt, "KubeVirt", false, kubeVirtFormat{}},
	{Akri, "Akri", false, akriFormat{}},
	{NVIDIA, "NVIDIA's device plugin", false, nvidiaFormat{}},
	{Compose, "Docker Compose", true, composeFormat{}},
	{Quadlet, "Podman", true, quadletFormat{}},
	{Pod, "Kubernetes pods", true, podFormat{}},
	{Udev, "udev", true, udevFormat{}},
}

// Formats lists the values of Options.Format.
func Formats() []Format {
	all := []Format{Auto}
	for _, f := range formats {
		all = append(all, f.name)
	}
	return all
}

// plugin is the name of the plugin in messages.
func (f Format) plugin() string {
	i := slices.IndexFunc(formats, func(known knownFormat) bool { return known.name == f })
	if i < 0 {
		return "a device plugin that import knows"
	}
	return formats[i].plugin
}

// plain reports whether the format is not a configuration of a device plugin.
func (f Format) plain() bool {
	i := slices.IndexFunc(formats, func(known knownFormat) bool { return known.name == f })
	return i >= 0 && formats[i].plain
}

// detect returns the format of a value, Auto if it is not a configuration.
func (c *conversion) detect(v *value) Format {
	for _, f := range formats {
		if f.plain == c.searchPlain && f.detect(v) {
			return f.name
		}
	}
	return Auto
}
