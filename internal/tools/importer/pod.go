package importer

import (
	"slices"
	"strings"
)

// podFormat are pods, and templates of pods, with hostPath volumes of devices.
type podFormat struct{}

func (podFormat) detect(v *value) bool {
	isPod := v.get("containers").list()
	return isPod && slices.ContainsFunc(v.get("volumes").items(), isDeviceVolume)
}

// isDeviceVolume reports whether a volume of a pod is a path below /dev that may have
// devices.
func isDeviceVolume(volume *value) bool {
	host := hostPath(volume)
	return isBelow(host, "/dev") && !hasNoNodes(host)
}

func hostPath(volume *value) string {
	return strings.TrimSuffix(volume.get("hostPath").get("path").string(), "/")
}

func (podFormat) convert(c *conversion, sources []source) {
	for _, s := range sources {
		volumes := make(map[string]string)
		for _, volume := range s.get("volumes").items() {
			if isDeviceVolume(volume) {
				volumes[volume.get("name").string()] = hostPath(volume)
			}
		}
		var devices []hostDevice
		containers := s.get("containers").items()
		for _, container := range append(containers, s.get("initContainers").items()...) {
			devices = append(devices, podDevices(container, volumes)...)
		}
		if len(devices) == 0 {
			s.differs("not imported: no container mounts the volumes of /dev")
		}
		c.addHostDevices(devices, s.workload)
	}
}

// podDevices lists the devices that a container mounts.
func podDevices(container *value, volumes map[string]string) (devices []hostDevice) {
	for _, mount := range container.get("volumeMounts").items() {
		host, ok := volumes[mount.get("name").string()]
		if !ok {
			continue
		}
		if below := mount.get("subPath").string(); below != "" {
			host += "/" + strings.Trim(below, "/")
		}
		d := hostDevice{
			at:        mount,
			user:      container.get("name").string(),
			host:      host,
			container: strings.TrimSuffix(mount.get("mountPath").string(), "/"),
		}
		if mount.get("readOnly").string() == "true" {
			// A read-only mount does not keep a container from writing to a device.
			d.permissions = defaultPermissions
		}
		devices = append(devices, d)
	}
	return devices
}
