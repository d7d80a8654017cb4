package importer

import (
	"regexp"
	"slices"
	"strings"
)

// Rules of udev are elements with commas between them: a key, an operator and a value. == and
// != are conditions; all other operators are actions.
//
// Akri passes the conditions that libudev's enumerator knows to the enumerator, and tests the others
// itself (find_devices in discovery-handlers/udev/src/discovery_impl.rs):
//
//	enumerator, patterns of fnmatch     == of KERNEL, SUBSYSTEM, ATTR, ENV, TAG; != of ATTR, SUBSYSTEM
//	handler, regular expressions        ATTRS, DRIVER, DRIVERS, KERNELS, SUBSYSTEMS, TAGS; != of the rest
//
// Tags, most properties, and programs depend on other rules and on udev's database.

// udevConditions are our conditions for the keys of rules, with ATTR for ATTRS and ID_ for ID_USB_.
// Other keys of ATTR are sysfs attributes. Conditions on the names of nodes are globs.
var udevConditions = map[string]string{
	"KERNEL":               "glob",
	"ENV DEVNAME":          "glob",
	"SUBSYSTEM":            "subsystem",
	"DRIVERS":              "driver",
	"ENV ID_DRIVER":        "driver",
	"KERNELS":              "usb.port",
	"ATTR idVendor":        "usb.vendor",
	"ENV ID_VENDOR_ID":     "usb.vendor",
	"ATTR idProduct":       "usb.product",
	"ENV ID_MODEL_ID":      "usb.product",
	"ATTR serial":          "usb.serial",
	"ENV ID_SERIAL_SHORT":  "usb.serial",
	"ATTR product":         "usb.product_name",
	"ENV ID_INTERFACE_NUM": "attr.bInterfaceNumber",
}

// udevFilter is one element of a udev rule, such as ATTRS{idVendor}=="0403".
type udevFilter struct {
	key   string // "ATTRS"
	name  string // "idVendor"
	op    string // "=="
	value string // "0403"
	text  string // the element as it is written
}

// udevElement matches an element of a rule: the key, the name in {}, the operator and the
// value (man 7 udev).
const udevElement = `([A-Z_]+)(?:\{([^}]*)\})?\s*(==|!=|[-+:]?=)\s*[ei]?"((?:\\.|[^"\\])*)"`

// parseUdevRule lists the elements of a rule.
func parseUdevRule(rule string) []udevFilter {
	var filters []udevFilter
	for _, m := range regexp.MustCompile(udevElement).FindAllStringSubmatch(rule, -1) {
		filters = append(filters, udevFilter{
			key:   m[1],
			name:  m[2],
			op:    m[3],
			value: m[4],
			text:  m[0],
		})
	}
	return filters
}

// condition is our condition for an element, empty if there is none.
func (f udevFilter) condition() string {
	name := strings.Replace(f.name, "ID_USB_", "ID_", 1)
	key := strings.TrimSpace(strings.Replace(f.key, "ATTRS", "ATTR", 1) + " " + name)
	found := udevConditions[key]
	isPort := fullMatch(`[0-9*?]+-[0-9.*?]+`, f.value)
	if f.value == "pci" || found == "usb.port" && !isPort {
		return ""
	}
	if found == "glob" && isPort {
		return "usb.port" // the kernel's name of a USB device
	}
	// "*" and other wildcards in names of attributes are not part of udev's language.
	isAttribute := strings.HasPrefix(f.key, "ATTR") && fullMatch(`[\w./-]+`, f.name)
	// A pattern of both IDs cannot negate only one of them.
	isNegatedID := f.op == "!=" && (found == "usb.vendor" || found == "usb.product")
	if found != "" && !isNegatedID {
		return found
	}
	if isAttribute {
		return "attr." + f.name
	}
	return ""
}

// isUSB reports whether an element is a condition that the device is, or is below, a USB device.
func (f udevFilter) isUSB() bool {
	return f.op == "==" && f.value == "usb" && (f.key == "SUBSYSTEMS" || f.name == "ID_BUS")
}

// udevMatch translates the conditions of a rule. lost is a condition that cannot be translated,
// empty if there is none.
func udevMatch(v *value, rule string) (m match, lost string) {
	conditions := make(map[string][]string)
	for _, f := range parseUdevRule(rule) {
		isProperty := f.key == "ENV" && f.op == "=="
		isCamera := isProperty && f.name == "ID_V4L_CAPABILITIES" && strings.Contains(f.value, "capture")
		isWholeDevice := isProperty && f.name == "DEVTYPE" && f.value == "usb_device"
		key := f.condition()
		values := f.values()
		switch {
		case f.op != "==" && f.op != "!=":
			v.differs("Akri refuses rules with actions such as %s; imported without it", f.text)
		case isCamera:
			v.differs(`%s is imported as attr.index = "0", the first node of a camera`, f.text)
			conditions["attr.index"] = []string{"0"}
		case f.isUSB():
			conditions["usb.id"] = []string{"*:*"}
		case isWholeDevice:
			conditions["subsystem"] = []string{"usb"}
		case key == "" || len(values) == 0:
			return m, f.text
		default:
			conditions[key] = append(conditions[key], values...)
		}
		// Only the USB device has these attributes, and not the devices below it.
		isOwn := f.key == "ATTR" && fullMatch("usb.(vendor|product|serial|product_name)", key)
		if isOwn {
			conditions["subsystem"] = []string{"usb"}
		}
	}
	properties := regexp.MustCompile(`ENV\{[^}]*\}\s*==`).FindAllString(rule, -1)
	if len(properties) > 1 {
		v.differs("Akri selects a device if one of several ENV{} conditions with == holds, since libudev's enumerator joins them with or; here all of them must hold: %s", rule)
	}
	m.addConditions(conditions)
	return m, ""
}

// addConditions adds the conditions of a rule.
func (m *match) addConditions(conditions map[string][]string) {
	usb := ids(conditions["usb.vendor"], conditions["usb.product"])
	if len(usb) > 0 {
		conditions["usb.id"] = usb
	}
	names := conditions["glob"]
	for _, key := range []string{"usb.vendor", "usb.product", "glob"} {
		delete(conditions, key)
	}
	for key, values := range conditions {
		m.set(key, values...)
	}
	for _, name := range names {
		glob, isNegated := strings.CutPrefix(name, "!")
		if !strings.HasPrefix(glob, "/dev/") {
			glob = "/dev/**/" + glob
		}
		if isNegated && len(m.Glob) == 0 {
			m.Glob = []string{"/dev/**"}
		}
		if isNegated {
			glob = "!" + glob
		}
		m.Glob = append(m.Glob, glob)
	}
}

// values are the patterns of a value, none if there is no pattern for it.
func (f udevFilter) values() []string {
	isNegated := f.op == "!="
	isForEnumerator := f.key == "ATTR" || f.key == "SUBSYSTEM"
	if !isNegated {
		isForEnumerator = isForEnumerator || f.key == "KERNEL" || f.key == "ENV"
	}
	globs := []string{translateFnmatch(f.value)}
	if !isForEnumerator {
		globs = regexpValues(f.value, isNegated)
	}
	if f.key == "KERNELS" && len(globs) > 0 {
		// KERNELS also holds for devices behind a hub with the name.
		globs = append(globs, globs[0]+".*")
	}
	if slices.Contains(globs, "") || strings.HasPrefix(f.value, "!") {
		return nil
	}
	for i := range globs {
		if isNegated {
			globs[i] = "!" + globs[i]
		}
	}
	return globs
}

// regexpValues are the patterns of a regular expression, none if there is no pattern for it.
func regexpValues(text string, isNegated bool) []string {
	expressions, err := parseRegexp("^(?:" + text + ")$")
	if err != nil {
		return nil
	}
	var globs []string
	for _, e := range expressions {
		// A pattern cannot exclude only the texts of a class.
		hasException := e.others != ""
		if e.isWider || hasException && isNegated {
			return nil
		}
		globs = append(globs, e.glob)
		if hasException {
			globs = append(globs, "!"+e.others)
		}
	}
	return globs
}
