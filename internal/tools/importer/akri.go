package importer

import (
	"cmp"
	"fmt"
	"strings"
)

// Configurations of Akri, or the values of its chart, that discover devices by rules of udev:
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
// as many slots as capacity says. With groupRecursive, a device and the devices below it are one
// instance. Akri itself also makes a resource for each instance, whose name has a hash: pods
// cannot know it in advance.

// akriDomain is the domain of all resources of Akri.
const akriDomain = "akri.sh"

// isAkri recognizes a Configuration by its kind, and the values of the chart by the list of
// rules, since values have neither kind nor version.
func isAkri(v *value) bool {
	isObject := strings.HasPrefix(v.get("apiVersion").string(), akriDomain+"/")
	isConfiguration := isObject && v.get("kind").string() == "Configuration"
	return isConfiguration || v.get("discoveryDetails").get("udevRules").list()
}

// akri converts a Configuration to one resource.
func (c *conversion) akri(s source) {
	c.comment("Not imported from Akri: brokers, services, the properties of instances, and the hash of the instance in names of variables.")
	spec := cmp.Or(s.get("spec"), s.value)
	// The default of the chart is akri-udev.
	name := cmp.Or(s.get("metadata").get("name").string(), s.get("name").string(), "akri-udev")
	v := s.value
	v.key = fmt.Sprintf("configuration %q", name)
	r := &resource{
		Name:     name,
		Each:     "node",
		mayShare: true,
	}
	handler := spec.get("discoveryHandler")
	if kind := handler.get("name").string(); kind != "" && kind != "udev" {
		v.lost("devices in the network, discovered by %q: list them as virtual", kind)
		return
	}
	r.Container.Env = make(map[string]any)
	r.addAkriRules(v, akriDetails(spec, handler))
	if len(r.Match) == 0 {
		v.lost("no udevRules that can be imported")
		return
	}
	for _, p := range handler.get("discoveryProperties").items() {
		p.lost("the property %q of the discovery", p.get("name").string())
	}
	// Akri has as many slots of a device as brokers may use it, on all nodes together; a
	// device of one node has them all.
	capacity := 1
	if n := spec.get("capacity"); n != nil {
		n.set(&capacity)
	}
	r.Count = validCount(v, capacity)
	// Broker properties are variables of every container that has the device.
	for _, p := range spec.get("brokerProperties").fields() {
		r.Container.Env[p.key] = escapeVariables(p.text())
	}
	if r.Each == "node" {
		r.Container.Env["UDEV_DEVNODE"] = "${container_path}"
		r.Container.Env["UDEV_DEVNODE_${index}"] = "${container_path}"
	}
	c.add(v, cmp.Or(c.domain, akriDomain), r)
}

// akriDetails are the details of a Configuration, which are YAML in a text, or of the
// chart's values.
func akriDetails(spec, handler *value) *value {
	details := cmp.Or(handler.get("discoveryDetails"), spec.get("discoveryDetails"))
	if !details.scalar() {
		return details
	}
	documents, err := details.documents()
	if err != nil || len(documents) != 1 {
		return details
	}
	return documents[0]
}

// addAkriRules sets what the rules select.
func (r *resource) addAkriRules(v, details *value) {
	var d struct {
		UdevRules      []string
		GroupRecursive bool
		Permissions    string
	}
	details.decode(&d)
	r.Container.Permissions = cmp.Or(d.Permissions, "rwm")
	for _, rule := range d.UdevRules {
		m, condition := udevMatch(v, rule)
		if condition != "" {
			v.lost("the rule %s, because nothing here tests %s", rule, condition)
			continue
		}
		r.Match = append(r.Match, m)
		selectsNodes := len(m.Glob)+len(m.Subsystem) > 0
		if d.GroupRecursive && !selectsNodes {
			r.Each = "device"
		}
	}
	if r.Each == "device" {
		v.differs("all nodes of the same hardware are one device, at the paths of the host, and UDEV_DEVNODE is not set")
	}
}
