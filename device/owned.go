package device

import "strings"

// PoolID is the ID of everything that a resource selects as one device.
func PoolID(resource string) string { return fit("all:"+resourceName(resource), MaxID) }

// GroupID is the ID of the hardware that has one value for a variable,
// "group:pci.slot:0000:3b:00".
func GroupID(variable, value string) string {
	return fit("group:"+field(variable)+":"+listName(value, ":"), MaxID)
}

// CDIDeviceID is the ID of one of the host's CDI devices, of which name is the
// qualified name: "cdi:nvidia.com:gpu:0".
func CDIDeviceID(name string) string {
	kind, id, _ := strings.Cut(name, "=")
	return fit("cdi:"+resourceName(kind)+":"+listName(id, ":"), MaxID)
}

// VirtualID is the ID of a device of a resource that has no hardware.
func VirtualID(resource, name string) string {
	return fit("virtual:"+resourceName(resource)+":"+field(name), MaxID)
}

// SharedID is the ID of a device that other resources may offer, too.
func SharedID(resource, id string) string {
	return fit("shared:"+resourceName(resource)+":"+id, MaxID)
}

// PathID is the ID of what is at a path of the host and is no device node.
func PathID(path string) string { return fit("path:"+listName(strings.Trim(path, "/"), "/"), MaxID) }

// resourceName is the name of a resource or a CDI kind, "example.com:gpu". No
// part of it has a colon.
func resourceName(name string) string { return listName(name, "/") }

// listName joins the parts of s with colons, or says it with a hash where one
// of them can't be in an ID.
func listName(s, separator string) string {
	parts := strings.Split(s, separator)
	for _, p := range parts {
		if !isClean(p) {
			return replaced(strings.ReplaceAll(s, separator, "-"), s)
		}
	}
	return strings.Join(parts, ":")
}
