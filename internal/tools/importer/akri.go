package importer

import (
	"cmp"
	"fmt"
	"regexp"
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
		Name: name,
		Each: "node",
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
	if handler.has("discoveryProperties") {
		v.lost("the properties of the discovery")
	}
	// Akri has as many slots of a device as brokers may use it, on all nodes together; a
	// device of one node has them all.
	if n := spec.get("capacity"); n != nil {
		n.set(&r.Count)
		r.Count = validCount(v, r.Count)
	}
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
		m, rest := udevMatch(rule)
		if rest != "" {
			v.lost("the rule %s: only == of KERNEL, SUBSYSTEM, idVendor, idProduct and serial is converted, and not %s", rule, rest)
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

// udevElement matches an element of a udev rule that is converted: equality of a key that a match
// has. ATTRS are regular expressions to Akri, and ATTR patterns, so that both have to be plain text.
const udevElement = `^[\s,]*(?:(KERNEL|SUBSYSTEM)\s*==\s*"([A-Za-z][^"|{}\\!^]*)"|(ATTRS?)\{(idVendor|idProduct|serial)\}\s*==\s*"([\w-]+)")[\s,]*`

// udevMatch converts a rule. The beginning of rest is what has no equivalent, empty if there is none.
func udevMatch(rule string) (m match, rest string) {
	element := regexp.MustCompile(udevElement)
	var vendors, products []string
	for rest = rule; rest != ""; {
		found := element.FindStringSubmatch(rest)
		if found == nil {
			return m, rest
		}
		rest = rest[len(found[0]):]
		switch found[1] + found[4] {
		case "KERNEL":
			m.Glob = []string{"/dev/**/" + translateGlob(found[2])}
		case "SUBSYSTEM":
			m.set("subsystem", translateGlob(found[2]))
		case "idVendor":
			vendors = []string{found[5]}
		case "idProduct":
			products = []string{found[5]}
		case "serial":
			m.set("usb.serial", found[5])
		}
		if found[3] == "ATTR" {
			// Only the USB device itself has these attributes, and not the devices below it.
			m.set("subsystem", "usb")
		}
	}
	m.set("usb.id", ids(vendors, products)...)
	return m, strings.TrimSpace(rest)
}
