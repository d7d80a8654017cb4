package device

import "strings"

// The IDs of devices other than single nodes and hardware with its nodes. The prefix
// determines the syntax. No ID of hardware or of a node starts with such a prefix, see isReserved.
//
//	all:example.com:cameras             everything that a resource selects
//	group:pci.slot:0000:3b:00           the hardware with one value of a variable
//	cdi:nvidia.com:gpu:0                a CDI device of the host
//	virtual:example.com:licence:lic-0   a device without hardware
//	shared:example.com:gpu:0000:3b:00.0 a device that other resources may offer too
//	path:var:run:docker.sock            a path that is not a device node

// PoolID is the ID of everything that a resource selects, as one device.
func PoolID(resource string) string { return fit("all:"+qualified(resource), MaxID) }

// GroupID is the ID of the hardware with one value of a variable,
// "group:pci.slot:0000:3b:00".
func GroupID(variable, value string) string {
	return fit("group:"+field(variable)+":"+joinParts(value, ":"), MaxID)
}

// CDIDeviceID is the ID of a CDI device of the host with the qualified name:
// "cdi:nvidia.com:gpu:0".
func CDIDeviceID(name string) string {
	kind, id, _ := strings.Cut(name, "=")
	return fit("cdi:"+qualified(kind)+":"+joinParts(id, ":"), MaxID)
}

// CDIDeviceName is the ID of a CDI device that consists only of its name: "GPU-4cf8db2d-...".
func CDIDeviceName(name string) string {
	_, id, _ := strings.Cut(name, "=")
	return fit(joinParts(id, ":"), MaxID)
}

// VirtualID is the ID of a device of a resource that has no hardware.
func VirtualID(resource, name string) string {
	return fit("virtual:"+qualified(resource)+":"+field(name), MaxID)
}

// SharedID is the ID of a device that other resources may offer too. id is its ID without the
// prefix.
func SharedID(resource, id string) string {
	return fit("shared:"+qualified(resource)+":"+id, MaxID)
}

// PathID is the ID of an absolute, clean path of the host that is not a device node.
func PathID(path string) string {
	return fit("path:"+joinParts(strings.TrimPrefix(path, "/"), "/"), MaxID)
}

// qualified is the name of a resource or a CDI kind as two fields, "example.com:gpu".
// Other texts are one field, so that the text cannot be confused with the field that follows it.
func qualified(name string) string {
	if strings.Count(name, "/") != 1 {
		return replaced(name, name)
	}
	return joinParts(name, "/")
}

// joinParts joins the parts of s with colons, or replaces s by one field with a hash if a part
// is not clean.
func joinParts(s, separator string) string {
	parts := strings.Split(s, separator)
	if areClean(parts) {
		return strings.Join(parts, ":")
	}
	return replaced(strings.ReplaceAll(s, separator, "-"), s)
}
