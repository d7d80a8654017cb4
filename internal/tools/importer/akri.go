package importer

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// akriDomain is the domain of all resources of Akri.
const akriDomain = "akri.sh"

// akriFormat are Configurations of Akri, or the values of its chart, that discover devices
// by rules of udev:
//
//	apiVersion: akri.sh/v0
//	kind: Configuration
//	metadata: {name: cameras}
//	spec:
//	  capacity: 2
//	  discoveryHandler:
//	    name: udev
//	    discoveryDetails: |
//	      udevRules:
//	      - 'KERNEL=="video[0-9]*", ATTRS{idVendor}=="046d"'
//
// A rule selects devices of udev, and each node of one of them is an instance: a device with
// as many slots as capacity says. A device without a node stands for the nearest device
// above it with a node. With groupRecursive, a device and the devices below it are one
// instance.
//
// The handler passes the conditions that libudev's enumerator knows to the enumerator, and
// tests the others itself (find_devices in discovery-handlers/udev/src/discovery_impl.rs):
//
//	enumerator, patterns of fnmatch     == of KERNEL, SUBSYSTEM, ATTR, ENV, TAG; != of ATTR, SUBSYSTEM
//	handler, regular expressions        ATTRS, DRIVER, DRIVERS, KERNELS, SUBSYSTEMS, TAGS; != of the rest
//
// The enumerator joins conditions on one kind of thing with or, except for attributes: two
// rules with ENV are less strict than they look.
type akriFormat struct{}

// detect recognizes a Configuration by its kind, and the values of the chart by the list of
// rules, since values have neither kind nor version.
func (akriFormat) detect(v *value) bool {
	isAkri := strings.HasPrefix(v.get("apiVersion").string(), akriDomain+"/")
	isConfiguration := isAkri && v.get("kind").string() == "Configuration"
	isChart := v.get("discoveryDetails").get("udevRules").list()
	isOldChart := v.get("udevRules").list() // until version 0.1 of Akri
	return isConfiguration || isChart || isOldChart
}

// convert converts the Configurations, each to one resource. Akri itself also makes a resource
// for each instance, whose name has a hash: pods cannot know it in advance.
func (akriFormat) convert(c *conversion, sources []source) {
	c.comment("Not imported from Akri: brokers, services, the properties of instances, and the hash of the instance in names of variables.")
	for n, s := range sources {
		v := &value{Node: s.Node, c: c}
		c.akriConfiguration(s, v.named("configuration", n+1))
	}
}

// akriConfiguration converts a Configuration.
func (c *conversion) akriConfiguration(s source, v *value) {
	spec := cmp.Or(s.get("spec"), s.value)
	handler := spec.get("discoveryHandler")
	kind := handler.get("name").string()
	if kind != "" && kind != "udev" {
		v.differs("not imported: devices in the network, discovered by %q: list them as virtual", kind)
		return
	}
	name := s.get("metadata").get("name").string()
	const chartName = "akri-udev" // the default of the chart
	name = cmp.Or(name, s.get("name").string(), chartName)

	r := &resource{
		Name:     c.domainOr(akriDomain) + "/" + name,
		Each:     "node",
		mayShare: true,
	}
	r.Container.Env = map[string]any{}
	rules := r.akriRules(v, akriDetails(spec))
	for _, p := range handler.get("discoveryProperties").items() {
		r.akriProperty(v, p.get("name").string(), p.get("value").string())
	}
	// Akri has as many slots of a device as brokers may use it, on all nodes together; a
	// device of one node has them all.
	capacity := 1
	if n := spec.get("capacity"); n != nil {
		n.set(&capacity)
	}
	r.setCount(v, capacity)
	// Broker properties are variables of every container that has the device.
	properties, _ := spec.get("brokerProperties").fields()
	for _, p := range properties {
		r.Container.Env[p.key] = escapeVariables(p.text())
	}
	if r.Each == "node" {
		r.Container.Env["UDEV_DEVNODE"] = "${container_path}"
		r.Container.Env["UDEV_DEVNODE_${index}"] = "${container_path}"
	}
	rules.resource = r.Name
	rules.slots = max(capacity, 1)
	if rules.comparable {
		c.before = append(c.before, rules.devices)
	}
	c.add(v, r, s.workload)
}

// akriDetails are the details of a Configuration, which are YAML in a text, or of the
// chart's values, or of the first versions of Akri.
func akriDetails(spec *value) *value {
	details := spec.get("discoveryHandler").get("discoveryDetails")
	if details == nil {
		details = spec.get("discoveryDetails")
	}
	if details == nil {
		details = spec.get("protocol").get("udev")
	}
	if details == nil && spec.has("udevRules") {
		return spec.only("udevRules", "groupRecursive", "permissions")
	}
	if !details.scalar() {
		return details
	}
	documents := details.documents()
	if len(documents) != 1 {
		return details
	}
	return documents[0]
}

// akriProperty sets what a property of the discovery requests: what KubeVirt needs to pass a
// device to a virtual machine.
func (r *resource) akriProperty(v *value, name, content string) {
	hasPCI := slices.ContainsFunc(r.Match, func(m match) bool {
		return !reflect.ValueOf(m.PCI).IsZero()
	})
	switch {
	case name == "vfioPassthrough" && content == "true" && hasPCI:
		for i := range r.Match {
			r.Match[i].VFIO = true
		}
	case name == "devicePluginResourceName" && hasPCI:
		r.Container.Env["PCI_RESOURCE_${RESOURCE_KUBEVIRT}"] = "${pci.address}"
	case name == "devicePluginResourceName":
		r.Container.Env["USB_RESOURCE_${RESOURCE_KUBEVIRT}"] = "${attr:busnum}:${attr:devnum}"
	case name != "vfioPassthrough":
		r.differs(v, "not imported: the property %q of the discovery", name)
	}
}

// akriRules sets what the rules select, and returns the rules for the comparison.
func (r *resource) akriRules(v, details *value) akriLister {
	var d struct {
		UdevRules      []string
		GroupRecursive bool
		Permissions    string
	}
	if details == nil {
		v.report("discoveryDetails is missing: udevRules are required")
		return akriLister{}
	}
	details.decode(&d)
	r.Container.Permissions = "rwm"
	if d.Permissions != "" && fullMatch(`r?w?m?`, d.Permissions) {
		r.Container.Permissions = d.Permissions
	}
	lister := akriLister{
		grouped:    d.GroupRecursive,
		comparable: true,
	}
	for _, rule := range d.UdevRules {
		filters := parseUdevRule(rule)
		lister.rules = append(lister.rules, filters)
		lister.comparable = lister.comparable && canCompareAkri(filters)
		r.akriRule(v, rule, filters, d.GroupRecursive)
	}
	if r.Each == "device" {
		r.differs(v, "differs: all nodes of the same hardware are one device, at the paths of the host, and UDEV_DEVNODE is not set")
	}
	return lister
}

// akriRule adds the matches of a rule.
func (r *resource) akriRule(v *value, rule string, filters []udevFilter, grouped bool) {
	for _, f := range filters {
		if !f.isMatch() {
			r.differs(v, "differs: Akri refuses rules with actions such as %s; imported without it", f.text)
		}
		if why := impossibleInAkri(f); why != "" {
			r.differs(v, "differs: %s", why)
		}
		if f.full() == "ENV ID_V4L_CAPABILITIES" && !f.negated() {
			r.differs(v, `differs: %s is imported as attr.index = "0", the first node of a camera`, f.text)
		}
	}
	alternatives := akriAlternatives(filters)
	if len(alternatives) > 1 {
		r.differs(v, "differs: Akri selects a device if one of several ENV{} conditions with == holds, since libudev's enumerator joins them with or: %s", rule)
	}
	for _, conditions := range alternatives {
		m, untestable := akriMatch(conditions)
		if untestable != "" {
			untestable += " in the rule " + rule
		}
		r.addMatches(v, untestable, m)
		selectsNodes := len(m.Glob)+len(m.Subsystem) > 0
		ofHardware := grouped || !reflect.ValueOf(m.PCI).IsZero()
		if untestable == "" && ofHardware && !selectsNodes {
			r.Each = "device"
		}
	}
}

// akriAlternatives splits a rule where libudev's enumerator joins conditions with or: one
// rule for each property that has to be equal (match_property in
// src/libsystemd/sd-device/device-enumerator.c of systemd).
func akriAlternatives(filters []udevFilter) (alternatives [][]udevFilter) {
	isProperty := func(f udevFilter) bool {
		return f.key == "ENV" && f.op == "=="
	}
	var common []udevFilter
	var properties []udevFilter
	for _, f := range filters {
		if isProperty(f) {
			properties = append(properties, f)
		} else {
			common = append(common, f)
		}
	}
	if len(properties) == 0 {
		return [][]udevFilter{common}
	}
	for _, p := range properties {
		alternatives = append(alternatives, append(slices.Clone(common), p))
	}
	return alternatives
}

// akriMatch converts the conditions of a rule.
func akriMatch(filters []udevFilter) (m match, untestable string) {
	for _, f := range filters {
		isOwnDriver := f.key == "DRIVER" && !isPCIRule(filters)
		switch {
		case isOwnDriver:
			return m, f.text + " (nodes have no driver of their own: DRIVERS is the driver of their hardware)"
		case f.key == "DEVPATH", strings.HasPrefix(f.key, "TAG"):
			untestable = cmp.Or(untestable, f.text)
		}
	}
	var rest []udevFilter
	for _, f := range filters {
		isCamera := f.full() == "ENV ID_V4L_CAPABILITIES" && !f.negated() && strings.Contains(f.value, "capture")
		if isCamera {
			m.attr("index", "0")
		} else if f.key != "DEVPATH" && !strings.HasPrefix(f.key, "TAG") {
			rest = append(rest, f)
		}
	}
	found, other := ruleMatch(rest, akriValues)
	if index, ok := m.Attr["index"]; ok {
		found.attr("index", index.([]string)...)
		if len(rest) == 0 {
			other = ""
		}
	}
	untestable = cmp.Or(untestable, other)
	return found, untestable
}

// isAkriRegexp reports whether a value is a regular expression of the whole text. All other
// values are patterns of fnmatch, since they are passed to libudev's enumerator
// (find_devices in discovery-handlers/udev/src/discovery_impl.rs of Akri).
func isAkriRegexp(f udevFilter) bool {
	switch f.key {
	case "KERNEL", "TAG", "DEVPATH", "ENV":
		return f.negated()
	case "ATTR", "SUBSYSTEM":
		return false
	}
	return true
}

// akriValues are the patterns of a value, none if there is no pattern for it.
func akriValues(f udevFilter) (values []string) {
	if f.value == "" {
		return nil
	}
	if !isAkriRegexp(f) {
		if v := fnmatchValue(f.value, f.negated()); v != "" {
			return []string{v}
		}
		return nil
	}
	expressions, _, err := parseRegexp("^(?:" + f.value + ")$")
	if err != nil {
		return nil
	}
	for _, e := range expressions {
		glob := strings.ReplaceAll(e.glob, anything, "*")
		switch {
		case glob == "":
			return nil
		case f.negated() && e.others != "":
			return nil // a pattern cannot exclude the names of a class only
		case f.negated():
			values = append(values, "!"+glob)
		case e.others != "":
			values = append(values, glob, "!"+e.others)
		default:
			values = append(values, glob)
		}
	}
	return values
}

// impossibleInAkri says why a value selects nothing, if it is meant as a regular expression
// and Akri takes it as a pattern of fnmatch.
func impossibleInAkri(f udevFilter) string {
	isPattern := f.isMatch() && !isAkriRegexp(f) && f.key != "ENV"
	isPort := fullMatch(usbPort, f.value)
	if !isPattern || isPort || !fullMatch(`.*(\][+?]|\.[*+]|[(|)^$]|\\d).*`, f.value) {
		return ""
	}
	return fmt.Sprintf("%s is a pattern for Akri and not a regular expression, with * ? [a-z] only, and probably selects nothing; imported as such", f.text)
}
