package importer

import (
	"regexp"
	"strings"
)

// quadletFormat are container units of Podman (man 5 podman-systemd.unit):
//
//	[Container]
//	AddDevice=/dev/ttyUSB0:/dev/ttyACM0
//	AddDevice=-/dev/dri
//
// AddDevice takes the argument of podman run --device. A leading "-" leaves the device out
// where the host lacks it.
type quadletFormat struct{}

// detect recognizes a unit by its text, since it is not YAML. Units are often in a text of
// YAML, such as a Butane configuration.
func (quadletFormat) detect(v *value) bool { return v.scalar() && isQuadlet(v.Value) }

// isQuadlet reports whether a text is a container unit with devices.
func isQuadlet(text string) bool {
	hasSection := regexp.MustCompile(`(?m)^\s*\[Container\]\s*$`).MatchString(text)
	return hasSection && quadletDevice().MatchString(text)
}

// quadletDevice matches a line of a unit with a device.
func quadletDevice() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[ \t]*(AddDevice|Volume|PodmanArgs)[ \t]*=[ \t]*(.*/dev.*|[\w.-]+/[\w.-]+=\S+)$`)
}

// convert converts the lines with devices. Units are not parsed further: a line is the same in
// every section that may have it.
func (quadletFormat) convert(c *conversion, sources []source) {
	var devices []hostDevice
	for _, s := range sources {
		user := "the container"
		if m := regexp.MustCompile(`(?m)^\s*ContainerName\s*=\s*(\S+)`).FindStringSubmatch(s.Value); m != nil {
			user = m[1]
		}
		for i, line := range strings.Split(s.Value, "\n") {
			m := quadletDevice().FindStringSubmatch(line)
			if m == nil {
				continue
			}
			at := s.value.with(line)
			at.Line = s.firstLine() + i
			at.parent = strings.TrimSpace(m[1]) + ": "
			for _, d := range quadletDevices(at, m[1], strings.TrimSpace(m[2])) {
				d.in = s.workload
				d.user = user
				devices = append(devices, d)
			}
		}
	}
	c.addHostDevices(devices)
}

// quadletDevices lists the devices of a line.
func quadletDevices(at *value, key, text string) (devices []hostDevice) {
	var d hostDevice
	switch key {
	case "AddDevice":
		// A leading "-" leaves the device out if the host does not have it.
		path, optional := strings.CutPrefix(text, "-")
		d = parseHostDevice(path)
		d.optional = optional
		if d.permissions == "" && !isCDIName(d.host) {
			d.permissions = "rwm"
		}
	case "Volume":
		host, rest, _ := strings.Cut(text, ":")
		container, _, _ := strings.Cut(rest, ":")
		d.host = host
		d.container = container
		// Other volumes are directories of files.
		if !isBelow(host, "/dev") {
			return nil
		}
	case "PodmanArgs":
		for _, m := range regexp.MustCompile(`--device[= ](\S+)`).FindAllStringSubmatch(text, -1) {
			devices = append(devices, quadletDevices(at, "AddDevice", m[1])...)
		}
		return devices
	}
	d.at = at
	return []hostDevice{d}
}
