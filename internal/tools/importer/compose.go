package importer

import (
	"slices"
	"strings"
)

// composeFormat are files of Docker Compose, whose services have devices:
//
//	services:
//	  zigbee:
//	    devices:
//	    - /dev/ttyUSB0:/dev/ttyACM0:rwm
//	    - nvidia.com/gpu=all
//
// The specification also has a long form with source, target and permissions
// (compose-spec, 05-services.md). A bind mount of a device node works in privileged
// containers only, and is imported like a device.
type composeFormat struct{}

// detect recognizes a file by a service with devices. A file without devices is reported as
// such (foreignKinds).
func (composeFormat) detect(v *value) bool {
	return slices.ContainsFunc(composeServices(v), func(s *value) bool {
		return len(composeDevices(s)) > 0
	})
}

// composeServices lists the services of a file. Documentation often shows the devices of a
// service only: such a piece is a service without a name.
func composeServices(v *value) []*value {
	if v.get("devices").list() && !v.has("services") {
		return []*value{v}
	}
	services, _ := v.get("services").fields()
	return services
}

// convert converts the devices of all services together, so that services that use the same
// device share one resource.
func (composeFormat) convert(c *conversion, sources []source) {
	var devices []hostDevice
	for _, s := range sources {
		isPart := s.path != "" && !s.has("services") && !s.has("image") && !s.has("build")
		if isPart {
			s.differs("differs: %q is the list of devices of another program: imported as the devices of its container", s.path+".devices")
		}
		for _, service := range composeServices(s.value) {
			if service.has("privileged") && service.get("privileged").string() == "true" {
				service.differs("not imported: privileged: true: name the other devices that the container opens, if any")
			}
			for _, key := range []string{"device_cgroup_rules", "gpus"} {
				if service.has(key) {
					service.differs("not imported: %s", key)
				}
			}
			for _, r := range composeReservations(service) {
				if r.get("driver").string() != cdiDriver {
					service.differs("not imported: deploy.resources.reservations.devices, since a driver of Docker finds these devices")
				}
			}
			for _, d := range composeDevices(service) {
				d.in = s.workload
				devices = append(devices, d)
			}
		}
	}
	c.addHostDevices(devices)
}

// cdiDriver is the driver of reservations that name CDI devices.
const cdiDriver = "cdi"

// composeReservations lists the reservations of a service, in which a driver of Docker finds devices.
func composeReservations(service *value) []*value {
	return service.get("deploy").get("resources").get("reservations").get("devices").items()
}

// composeDevices lists the devices of a service: of the key devices, volumes of paths below /dev, and
// reserved CDI devices.
func composeDevices(service *value) (devices []hostDevice) {
	for _, e := range service.get("devices").items() {
		if e.mapping() && !e.has("source") {
			continue // a device of another program
		}
		d := parseHostDevice(e.string())
		if e.mapping() {
			d.host = e.get("source").string()
			d.container = e.get("target").string()
			d.permissions = e.get("permissions").string()
		}
		d.at = e
		d.user = service.key
		// The default of docker run --device.
		if d.permissions == "" && !isCDIName(d.host) {
			d.permissions = "rwm"
		}
		if isBelow(d.host, "/dev") || isCDIName(d.host) || strings.Contains(d.host, "$") {
			devices = append(devices, d)
		}
	}
	for _, e := range service.get("volumes").items() {
		host, rest, _ := strings.Cut(e.string(), ":")
		container, _, _ := strings.Cut(rest, ":")
		if e.mapping() {
			host = e.get("source").string()
			container = e.get("target").string()
		}
		if !isBelow(host, "/dev") {
			continue
		}
		devices = append(devices, hostDevice{
			at:        e,
			user:      service.key,
			host:      strings.TrimSuffix(host, "/"),
			container: strings.TrimSuffix(container, "/"),
		})
	}
	for _, reservation := range composeReservations(service) {
		for _, id := range reservation.get("device_ids").items() {
			if reservation.get("driver").string() == cdiDriver && isCDIName(id.string()) {
				devices = append(devices, hostDevice{
					at:   id,
					user: service.key,
					host: id.string(),
				})
			}
		}
	}
	return devices
}

// containerPrograms run a container with the flags of docker run.
var containerPrograms = []string{"docker", "podman", "nerdctl"}

// composeOfRun is a file of Docker Compose for a command line of docker run with devices,
// nil if the command line is another one.
func composeOfRun(words []string) map[string]any {
	program := slices.IndexFunc(words, func(w string) bool {
		return slices.Contains(containerPrograms, w)
	})
	if program < 0 || program+1 >= len(words) {
		return nil
	}
	if action := words[program+1]; action != "run" && action != "create" {
		return nil
	}
	var devices []any
	name := "container"
	for i, w := range words {
		flag, text, hasValue := strings.Cut(w, "=")
		if !hasValue && i+1 < len(words) {
			text = words[i+1]
		}
		switch flag {
		case "--device":
			devices = append(devices, text)
		case "--name":
			name = text
		}
	}
	if len(devices) == 0 {
		return nil
	}
	service := map[string]any{"devices": devices}
	return map[string]any{"services": map[string]any{name: service}}
}
