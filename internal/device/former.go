package device

// FormerNodeID returns the ID of n in the previous version, or an empty string if it is the same.
func FormerNodeID(n *Node, f Form) string {
	was := n.Formerly
	if was == nil {
		return ""
	}
	former := NodeID(&Node{Path: n.Path, Type: n.Type}, f)
	if was.Bus != "" {
		key := nodeKeys(was, true)[n]
		former = fit(hardwareName(was, formerForm(was, f)), MaxID-1-len(key)) + ":" + key
	}
	if former == NodeID(n, f) {
		return ""
	}
	return former
}

// FormerHardwareID returns the ID of h in the previous version. It returns an empty string if the ID
// is the same, or if h was several devices.
func FormerHardwareID(h *Hardware, f Form) string {
	var was *Hardware
	for i, n := range h.Nodes {
		if i > 0 && n.Formerly != was {
			return ""
		}
		was = n.Formerly
	}
	if was == nil || h.Bus == PCIBus {
		return ""
	}
	hadNoHardware := was.Bus == ""
	if hadNoHardware && len(h.Nodes) == 1 {
		return FormerNodeID(h.Nodes[0], f)
	}
	former := HardwareID(was, formerForm(was, f))
	if hadNoHardware || former == HardwareID(h, f) {
		return ""
	}
	return former
}

// formerForm returns the form of IDs in the previous version, in which the serial number of a root hub
// was the name of its controller.
func formerForm(was *Hardware, f Form) Form {
	if was.IsRootHub() && !PlaceholderSerial(was.USB.Serial) {
		return SerialForm
	}
	return f
}
