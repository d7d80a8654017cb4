package importer

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// akriDomain is the domain of all resources of Akri.
const akriDomain = "akri.sh"

// akri converts Configurations of Akri, or the values of its chart, that discover
// devices by rules of udev.
func (c *conversion) akri(sources []source) {
	c.comment("Not imported from Akri: brokers, services, the properties of instances, and the hash of the instance in names of variables.")
	domain := c.domainOr(akriDomain)
	for n, s := range sources {
		spec := cmp.Or(s.get("spec"), s.value)
		name := cmp.Or(s.get("metadata").get("name").string(), s.get("name").string(), "akri-udev") // the chart's
		v := (&value{Node: s.Node, c: c}).named("configuration", n+1)
		handler := spec.get("discoveryHandler")
		if kind := handler.get("name").string(); kind != "" && kind != "udev" {
			v.differs("not imported: devices in the network, discovered by %q: list them as virtual", kind)
			continue
		}
		details := cmp.Or(handler.get("discoveryDetails"), spec.get("discoveryDetails"), spec.get("protocol").get("udev"))
		if details.scalar() {
			if documents := details.documents(); len(documents) == 1 {
				details = documents[0]
			}
		}
		r := &resource{Name: domain + "/" + name, mayShare: true, Each: "node"}
		r.Container.Env = map[string]any{}
		r.akriRules(v, details)
		for _, p := range handler.get("discoveryProperties").items() {
			r.akriProperty(v, p.get("name").string(), p.get("value").string())
		}
		capacity := 1
		if n := spec.get("capacity"); n != nil {
			n.set(&capacity)
		}
		r.setCount(v, capacity)
		properties, _ := spec.get("brokerProperties").fields()
		for _, p := range properties {
			r.Container.Env[p.key] = escapeVariables(p.text())
		}
		if r.Each == "node" {
			r.Container.Env["UDEV_DEVNODE"] = "${container_path}"
			r.Container.Env["UDEV_DEVNODE_${index}"] = "${container_path}"
		}
		c.add(v, r, s.workload)
	}
}

// akriProperty sets what a property of the discovery asks for: what KubeVirt needs to pass a
// device to a virtual machine.
func (r *resource) akriProperty(v *value, name, content string) {
	pci := func(m match) bool { return !reflect.ValueOf(m.PCI).IsZero() }
	switch {
	case name == "vfioPassthrough" && content == "true" && slices.ContainsFunc(r.Match, pci):
		for i := range r.Match {
			r.Match[i].VFIO = true
		}
	case name == "devicePluginResourceName" && slices.ContainsFunc(r.Match, pci):
		r.Container.Env["PCI_RESOURCE_${RESOURCE_KUBEVIRT}"] = "${pci.address}"
	case name == "devicePluginResourceName":
		r.Container.Env["USB_RESOURCE_${RESOURCE_KUBEVIRT}"] = "${attr:busnum}:${attr:devnum}"
	case name != "vfioPassthrough":
		r.differs(v, "not imported: the property %q of the discovery", name)
	}
}

// akriRules sets what the rules select.
func (r *resource) akriRules(v, details *value) {
	var d struct {
		UdevRules      []string
		GroupRecursive bool
		Permissions    string
	}
	if details == nil {
		v.report("no discoveryDetails: want udevRules")
		return
	}
	details.decode(&d)
	r.Container.Permissions = "rwm"
	if fullMatch(`r?w?m?`, d.Permissions) && d.Permissions != "" {
		r.Container.Permissions = d.Permissions
	}
	for _, rule := range d.UdevRules {
		m, untestable := akriMatch(rule)
		if untestable != "" {
			untestable += " in the rule " + rule
		}
		r.addMatches(v, untestable, m)
		whole := d.GroupRecursive || !reflect.ValueOf(m.PCI).IsZero()
		if untestable == "" && whole && len(m.Glob)+len(m.Subsystem) == 0 {
			r.Each = "device"
		}
	}
	if r.Each == "device" {
		r.differs(v, "differs: all nodes of the same hardware are a device, with their names of the host, and UDEV_DEVNODE is not set")
	}
}

// udevFilter is a filter of a rule: its key, the name in {}, the operator and the value.
const udevFilter = `([A-Z]+)(?:\{([^}]*)\})?\s*(==|!=|[-+:]?=)\s*"([^"]*)"`

// akriMatch converts a rule. Values are regular expressions of the whole text.
func akriMatch(rule string) (m match, untestable string) {
	ofPCI := fullMatch(`.*SUBSYSTEMS?\s*==\s*"pci".*`, rule)
	for _, f := range regexp.MustCompile(udevFilter).FindAllStringSubmatch(rule, -1) {
		key, name, op, text := f[1], f[2], f[3], f[4]
		if op != "==" && op != "!=" || ofPCI && strings.HasPrefix(key, "SUBSYSTEM") {
			continue // an action, or below
		}
		if ofPCI && strings.HasPrefix(key, "ATTR") {
			key = "PCI"
		}
		if name != "" {
			key += " " + name
		}
		dir := map[string]string{"KERNEL": "/dev/**/", "ENV DEVNAME": "/dev/"}[key]
		values := udevValues(text, op == "!=", dir)
		list, lengths := m.udevKey(key)
		switch {
		case len(values) == 0, len(lengths) > 0 && slices.ContainsFunc(values, func(v string) bool { return !isHex(v, lengths) }):
			untestable = f[0]
		case list != nil:
			*list = append(*list, values...)
		case dir != "":
			if op == "!=" {
				m.Glob = append(m.Glob, "/dev/**")
			}
			m.Glob = append(m.Glob, values...)
		case key == "ENV ID_V4L_CAPABILITIES" && strings.Contains(text, "capture"):
			m.attr("index", "0") // the node of a camera that captures
		case key == "SUBSYSTEMS" && text == "usb":
			m.USB.Vendor = append(m.USB.Vendor, "*")
		case fullMatch(`[\w./-]+`, name) && (strings.HasPrefix(key, "ATTR") || strings.HasPrefix(key, "PCI ")):
			m.attr(name, values...)
		default:
			untestable = f[0]
		}
	}
	if ofPCI && reflect.ValueOf(m.PCI).IsZero() {
		m.PCI.Vendor = []string{"*"}
	}
	if reflect.ValueOf(m).IsZero() && untestable == "" {
		untestable = fmt.Sprintf("no filter that Akri knows (%q)", rule)
	}
	return m, untestable
}

// udevValues are the patterns of a value, none if there is no pattern for it: paths in a
// directory, if there is one.
func udevValues(text string, not bool, dir string) (values []string) {
	expressions, _, err := parseRegexp("^(?:" + text + ")$")
	if err != nil || text == "" {
		return nil
	}
	for _, e := range expressions {
		glob := dir + strings.TrimPrefix(strings.ReplaceAll(e.glob, anything, "*"), dir)
		if glob == "" || dir != "" && path.Clean(glob) != glob { // no path of a node
			return nil
		}
		switch {
		case not:
			values = append(values, "!"+glob)
		case e.others != "":
			values = append(values, glob, "!"+dir+strings.TrimPrefix(e.others, dir))
		default:
			values = append(values, glob)
		}
	}
	return values
}

// udevKey is the condition for a key of udev, nil if there is none, and how many digits a
// hexadecimal number has there.
func (m *match) udevKey(key string) (list *[]string, lengths []int) {
	switch key {
	case "PCI vendor":
		return &m.PCI.Vendor, []int{4}
	case "PCI device":
		return &m.PCI.Device, []int{4}
	case "PCI class":
		return &m.PCI.Class, []int{2, 4, 6}
	case "SUBSYSTEM":
		return &m.Subsystem, nil
	case "DRIVER", "DRIVERS", "ENV ID_USB_DRIVER":
		return &m.Driver, nil
	case "ATTRS idVendor", "ATTR idVendor", "ENV ID_VENDOR_ID":
		return &m.USB.Vendor, []int{4}
	case "ATTRS idProduct", "ATTR idProduct", "ENV ID_MODEL_ID":
		return &m.USB.Product, []int{4}
	case "ATTRS serial", "ATTR serial", "ENV ID_SERIAL_SHORT":
		return &m.USB.Serial, nil
	case "ATTRS manufacturer", "ATTR manufacturer":
		return &m.USB.Manufacturer, nil
	case "ATTRS product", "ATTR product":
		return &m.USB.ProductName, nil
	}
	return nil, nil
}

// isHex reports whether a pattern may match a hexadecimal number of one of these lengths: no
// other one is a pattern of an ID.
func isHex(value string, lengths []int) bool {
	p, err := pattern.Parse(pattern.Hex, strings.TrimPrefix(value, "!"))
	return err == nil && !slices.ContainsFunc(p.Alternatives(), func(a pattern.Alternative) bool {
		return !slices.ContainsFunc(lengths, func(n int) bool { return a.Fits(n, "0123456789abcdef") })
	})
}
