package importer

import (
	"cmp"
	"slices"
	"strings"
)

// podFormat are pods, and templates of pods, with hostPath volumes of devices, and values of
// charts with such volumes:
//
//	containers:
//	- volumeMounts: [{name: stick, mountPath: /dev/ttyACM0}]
//	volumes:
//	- {name: stick, hostPath: {path: /dev/ttyUSB0, type: CharDevice}}
//
// Such a container has to be privileged: the device cgroup denies the node otherwise. Nothing
// counts the containers that use the device, and the pod can start on a node without it,
// where the kubelet creates a directory in its place if the volume has no type.
type podFormat struct{}

// detect recognizes the specification of a pod, wherever it is: in a Deployment, a Job, or a
// Custom Resource with a template. Without a volume of /dev it is left alone.
func (podFormat) detect(v *value) bool {
	isPod := v.get("containers").list()
	hasVolume := slices.ContainsFunc(v.get("volumes").items(), isDeviceVolume)
	isPersistence := v.key == "persistence" && len(persistentDevices(v)) > 0
	return isPod && hasVolume || isPersistence
}

// isDeviceVolume reports whether a volume of a pod is a path below /dev that may have
// devices.
func isDeviceVolume(volume *value) bool {
	return isDevicePath(hostPath(volume))
}

// isDevicePath reports whether a path of the host may be a device.
func isDevicePath(path string) bool { return isBelow(path, "/dev") && !hasNoNodes(path) }

// hostPath is the path of a hostPath volume without a slash at the end, otherwise empty.
func hostPath(volume *value) string {
	return strings.TrimSuffix(volume.get("hostPath").get("path").string(), "/")
}

// convert converts the devices of all pods together, so that pods that use the same device
// share one resource.
func (podFormat) convert(c *conversion, sources []source) {
	var devices []hostDevice
	for _, s := range sources {
		found := podDevices(s)
		if !s.has("containers") {
			found = persistentDevices(s.value)
		}
		if len(found) == 0 {
			s.differs("not imported: no container mounts the volumes of /dev")
		}
		for _, d := range found {
			d.in = s.workload
			devices = append(devices, d)
		}
	}
	c.addHostDevices(devices)
}

// podDevices lists the devices of a pod.
func podDevices(s source) (devices []hostDevice) {
	volumes := make(map[string]string)
	for _, volume := range s.get("volumes").items() {
		if isDeviceVolume(volume) {
			volumes[volume.get("name").string()] = hostPath(volume)
		}
	}
	containers := s.get("containers").items()
	for _, container := range append(containers, s.get("initContainers").items()...) {
		devices = append(devices, containerDevices(container, volumes)...)
	}
	return devices
}

// containerDevices lists the devices that a container mounts.
func containerDevices(container *value, volumes map[string]string) (devices []hostDevice) {
	for _, mount := range container.get("volumeMounts").items() {
		host, ok := volumes[mount.get("name").string()]
		if !ok {
			continue
		}
		// A subPath of a volume of /dev is often the only device of it that is mounted.
		if below := mount.get("subPath").string(); below != "" {
			host += "/" + strings.Trim(below, "/")
		}
		devices = append(devices, hostDevice{
			at:        mount,
			user:      container.get("name").string(),
			host:      host,
			container: strings.TrimSuffix(mount.get("mountPath").string(), "/"),
		})
	}
	return devices
}

// persistentDevices lists the devices of persistence, which the values of a chart of the
// library app-template have: elements with a hostPath.
func persistentDevices(v *value) (devices []hostDevice) {
	elements, _ := v.fields()
	for _, e := range elements {
		host := hostPathOf(e)
		if !isDevicePath(host) || e.get("enabled").string() == "false" {
			continue
		}
		for _, container := range persistentPaths(e) {
			devices = append(devices, hostDevice{
				at:        e,
				user:      "the chart",
				host:      host,
				container: strings.TrimSuffix(container, "/"),
			})
		}
	}
	return devices
}

// persistentPaths lists the paths in containers of an element of persistence: one for all containers
// (globalMounts), and one for each container that advancedMounts names.
func persistentPaths(element *value) []string {
	mounts := element.get("globalMounts").items()
	controllers, _ := element.get("advancedMounts").fields()
	for _, controller := range controllers {
		containers, _ := controller.fields()
		for _, container := range containers {
			mounts = append(mounts, container.items()...)
		}
	}
	var paths []string
	for _, mount := range mounts {
		paths = append(paths, mount.get("path").string())
	}
	if len(paths) == 0 {
		paths = append(paths, element.get("mountPath").string())
	}
	for i := range paths {
		// The default of the chart is the path on the host.
		paths[i] = cmp.Or(paths[i], hostPathOf(element))
	}
	return paths
}

// hostPathOf is the path on the host of an element of persistence.
func hostPathOf(element *value) string {
	return strings.TrimSuffix(element.get("hostPath").string(), "/")
}
