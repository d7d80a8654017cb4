package device

import "strings"

// The IDs of what is no single node and no hardware with its nodes. The word
// in front says how to read the rest; no ID of hardware or of a node begins
// with one of them, see reserved.
//
//	all:example.com:cameras             everything that a resource selects
//	group:pci.slot:0000:3b:00           the hardware with one value of a variable
//	cdi:nvidia.com:gpu:0                a CDI device of the host
//	virtual:example.com:licence:lic-0   a device without hardware
//	shared:example.com:gpu:0000:3b:00.0 what other resources may offer, too
//	path:var:run:docker.sock            what is at a path and is no device node

// PoolID is the ID of everything that a resource selects as one device.
func PoolID(resource string) string { return fit("all:"+qualified(resource), MaxID) }

// GroupID is the ID of the hardware that has one value for a variable,
// "group:pci.slot:0000:3b:00".
func GroupID(variable, value string) string {
	return fit("group:"+field(variable)+":"+listName(value, ":"), MaxID)
}

// CDIDeviceID is the ID of one of the host's CDI devices, of which name is the
// qualified name: "cdi:nvidia.com:gpu:0".
func CDIDeviceID(name string) string {
	kind, id, _ := strings.Cut(name, "=")
	return fit("cdi:"+qualified(kind)+":"+listName(id, ":"), MaxID)
}

// VirtualID is the ID of a device of a resource that has no hardware.
func VirtualID(resource, name string) string {
	return fit("virtual:"+qualified(resource)+":"+field(name), MaxID)
}

// SharedID is the ID of a device that other resources may offer, too; id is
// the one that it has otherwise.
func SharedID(resource, id string) string {
	return fit("shared:"+qualified(resource)+":"+id, MaxID)
}

// PathID is the ID of what is at a path of the host, absolute and clean, and
// is no device node.
func PathID(path string) string {
	return fit("path:"+listName(strings.TrimPrefix(path, "/"), "/"), MaxID)
}

// qualified is the name of a resource or a CDI kind as two fields,
// "example.com:gpu". Anything else that is given, which neither is, is one
// field, so that what follows can't be taken for a part of it.
func qualified(name string) string {
	if strings.Count(name, "/") != 1 {
		return replaced(name, name)
	}
	return listName(name, "/")
}

// listName joins the parts of s with colons, or says it in one field with a
// hash where one of them can't be in an ID.
func listName(s, separator string) string {
	parts := strings.Split(s, separator)
	for _, p := range parts {
		if !isClean(p) {
			return replaced(strings.ReplaceAll(s, separator, "-"), s)
		}
	}
	return strings.Join(parts, ":")
}
