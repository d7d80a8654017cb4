package importer

import (
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Rules of udev are elements with commas between them: a key, an operator and a value. == and
// != are conditions; all other operators are actions on a device for which all conditions
// hold. Akri uses the conditions as a query.
//
// The keys of conditions that have an equivalent here:
//
//	KERNEL, ENV{DEVNAME}                 the name or path of the node: glob
//	SUBSYSTEM                            the subsystem of the node: subsystem
//	ATTRS{idVendor} and others of USB    the USB device above: usb
//	KERNELS                              its port, where it looks like one: usb.port
//	DRIVERS                              its driver: driver
//	ATTR, ATTRS                          any other attribute: attr
//	SUBSYSTEM=="pci"                     all attributes are those of the function: pci
//
// Tags, most properties, and programs depend on other rules and on udev's database.

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
func parseUdevRule(rule string) (filters []udevFilter) {
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

// isMatch reports whether the element is a condition, and not an action.
func (f udevFilter) isMatch() bool { return f.op == "==" || f.op == "!=" }

// negated reports whether the condition is that the values differ.
func (f udevFilter) negated() bool { return f.op == "!=" }

// full is the key with its name: "ATTRS idVendor".
func (f udevFilter) full() string {
	if f.name == "" {
		return f.key
	}
	return f.key + " " + f.name
}

// udevSubsystem is the subsystem that a rule requires, if it requires exactly one.
func udevSubsystem(filters []udevFilter) string {
	for _, f := range filters {
		if f.key == "SUBSYSTEM" && f.op == "==" {
			return f.value
		}
	}
	return ""
}

// isPCIRule reports whether a rule selects PCI functions or what is below them.
func isPCIRule(filters []udevFilter) bool {
	return slices.ContainsFunc(filters, func(f udevFilter) bool {
		return strings.HasPrefix(f.key, "SUBSYSTEM") && f.op == "==" && f.value == "pci"
	})
}

// ownUSBAttributes are attributes of USB devices, which no other device has.
const ownUSBAttributes = `ATTR (idVendor|idProduct|manufacturer|product|serial)`

// ruleMatch translates the conditions of a rule of udev. values translates a value to
// patterns of ours, and returns none if it cannot. untestable is a condition that ours
// cannot test, empty if there is none.
func ruleMatch(filters []udevFilter, values func(udevFilter) []string) (m match, untestable string) {
	b := ruleBuilder{
		subsystem: udevSubsystem(filters),
		ofPCI:     isPCIRule(filters),
		values:    values,
	}
	for _, f := range filters {
		if f.isMatch() && !b.add(f) && untestable == "" {
			untestable = f.text
		}
	}
	b.finish()
	if untestable == "" && reflect.ValueOf(b.match).IsZero() {
		untestable = "a rule without a condition that selects devices"
	}
	return b.match, untestable
}

// ruleBuilder builds the match of a rule.
type ruleBuilder struct {
	match     match
	subsystem string
	ofPCI     bool
	ownUSB    bool
	values    func(udevFilter) []string
}

// add adds a condition. It returns false if ours cannot test the condition.
func (b *ruleBuilder) add(f udevFilter) bool {
	isSubsystem := strings.HasPrefix(f.key, "SUBSYSTEM")
	if b.ofPCI && isSubsystem {
		return true // finish adds it
	}
	if b.ignores(f) {
		return true
	}
	values := b.values(f)
	if len(values) == 0 {
		return false
	}
	if dir, ok := nodeKeys[f.full()]; ok && !b.namesUSBPort(f) {
		return b.addGlob(f, dir, values)
	}
	key := b.keyOf(f)
	if key == "KERNELS" && !fullMatch(usbPort, f.value) {
		return false
	}
	list, lengths := b.match.udevKey(key)
	if len(lengths) > 0 && !allHex(values, lengths) {
		return false
	}
	if key == "KERNELS" {
		values = portsBelow(values)
	}
	if list != nil {
		*list = append(*list, values...)
		return b.addOwnUSB(f)
	}
	return b.addOther(f, values)
}

// ignores reports whether a condition holds for all devices that ours selects: a rule for
// the event of adding a device, or for whole USB devices.
func (b *ruleBuilder) ignores(f udevFilter) bool {
	isDeviceType := f.full() == "ENV DEVTYPE" && f.value == "usb_device" && b.subsystem == "usb"
	return f.key == "ACTION" || isDeviceType && !f.negated()
}

// usbPort matches the kernel's name of a USB device, with wildcards: "1-1.4".
const usbPort = `[0-9*?]+-[0-9.*?]+(\[[^\]:]+\][0-9.*?]*)*`

// portsBelow adds the ports below ports: KERNELS also holds for devices behind a hub with
// the name.
func portsBelow(values []string) (all []string) {
	for _, v := range values {
		all = append(all, v)
		if !strings.HasSuffix(v, "*") {
			all = append(all, v+".*")
		}
	}
	return all
}

// keyOf is the key of a condition in udevKey.
func (b *ruleBuilder) keyOf(f udevFilter) string {
	switch {
	case b.ofPCI && strings.HasPrefix(f.key, "ATTR"):
		return "PCI " + f.name
	case b.ofPCI && strings.HasPrefix(f.key, "DRIVER"):
		return "PCI driver"
	case b.namesUSBPort(f):
		return "KERNELS"
	}
	return f.full()
}

// namesUSBPort reports whether a condition on the kernel's name concerns a USB device, which
// the kernel names after its port, while its node has a number.
func (b *ruleBuilder) namesUSBPort(f udevFilter) bool {
	return f.key == "KERNEL" && b.subsystem == "usb"
}

// nodeKeys are the keys that name a node, with the directory before the name.
var nodeKeys = map[string]string{
	"KERNEL":      "/dev/**/",
	"ENV DEVNAME": "/dev/",
}

// addGlob adds a condition on the name of the node.
func (b *ruleBuilder) addGlob(f udevFilter, dir string, values []string) bool {
	var globs []string
	for _, v := range values {
		negation := ""
		if name, negated := strings.CutPrefix(v, "!"); negated {
			negation = "!"
			v = name
		}
		glob := dir + strings.TrimPrefix(v, dir)
		if path.Clean(glob) != glob {
			return false // it is no path of a node
		}
		if _, err := parseGlob(glob); err != nil {
			return false
		}
		globs = append(globs, negation+glob)
	}
	if f.negated() {
		b.match.Glob = append(b.match.Glob, "/dev/**")
	}
	b.match.Glob = append(b.match.Glob, globs...)
	return true
}

// addOwnUSB adds what a condition on an attribute of the device itself implies: only the
// USB device has it, and not the devices below, such as serial ports.
func (b *ruleBuilder) addOwnUSB(f udevFilter) bool {
	if b.ofPCI || !fullMatch(ownUSBAttributes, f.full()) {
		return true
	}
	b.ownUSB = true
	return b.subsystem == "" || b.subsystem == "usb"
}

// addOther adds conditions that are no list of values.
func (b *ruleBuilder) addOther(f udevFilter, values []string) bool {
	isBus := f.full() == "SUBSYSTEMS" || f.full() == "ENV ID_BUS"
	// "*" and other wildcards in names of attributes are not part of udev's language.
	isAttribute := fullMatch(`[\w./-]+`, f.name) && strings.HasPrefix(f.key, "ATTR")
	switch {
	case isBus && f.value == "usb" && !f.negated():
		b.match.USB.Vendor = append(b.match.USB.Vendor, "*")
	case f.full() == "ENV ID_USB_INTERFACE_NUM":
		b.match.attr("bInterfaceNumber", values...)
	case isAttribute:
		b.match.attr(f.name, values...)
	default:
		return false
	}
	return true
}

// finish adds the conditions that several elements imply.
func (b *ruleBuilder) finish() {
	m := &b.match
	if b.ofPCI && reflect.ValueOf(m.PCI).IsZero() {
		m.PCI.Vendor = []string{"*"}
	}
	if b.ownUSB && len(m.Subsystem) == 0 {
		m.Subsystem = []string{"usb"}
	}
	// "*" stands for any USB device, which a vendor implies.
	if len(m.USB.Vendor) > 1 {
		m.USB.Vendor = slices.DeleteFunc(m.USB.Vendor, func(v string) bool { return v == "*" })
	}
	if len(m.USB.Vendor) == 0 && b.match.USB.Vendor != nil {
		m.USB.Vendor = []string{"*"}
	}
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
	case "PCI driver":
		return &m.PCI.Driver, nil
	case "SUBSYSTEM":
		return &m.Subsystem, nil
	case "DRIVERS", "ENV ID_USB_DRIVER":
		return &m.Driver, nil
	case "ATTRS idVendor", "ATTR idVendor", "ENV ID_VENDOR_ID", "ENV ID_USB_VENDOR_ID":
		return &m.USB.Vendor, []int{4}
	case "ATTRS idProduct", "ATTR idProduct", "ENV ID_MODEL_ID", "ENV ID_USB_MODEL_ID":
		return &m.USB.Product, []int{4}
	case "ATTRS serial", "ATTR serial", "ENV ID_SERIAL_SHORT", "ENV ID_USB_SERIAL_SHORT":
		return &m.USB.Serial, nil
	case "ATTRS manufacturer", "ATTR manufacturer":
		return &m.USB.Manufacturer, nil
	case "ATTRS product", "ATTR product":
		return &m.USB.ProductName, nil
	case "KERNELS":
		return &m.USB.Port, nil
	}
	return nil, nil
}

// allHex reports whether all patterns may match a hexadecimal number of one of these
// lengths: no other pattern is a pattern of an ID.
func allHex(values []string, lengths []int) bool {
	for _, v := range values {
		p, err := pattern.Parse(pattern.Hex, strings.TrimPrefix(v, "!"))
		if err != nil {
			return false
		}
		for _, a := range p.Alternatives() {
			if !fitsOneOf(a, lengths) {
				return false
			}
		}
	}
	return true
}

// fitsOneOf reports whether a pattern matches a number with one of these lengths.
func fitsOneOf(a pattern.Alternative, lengths []int) bool {
	return slices.ContainsFunc(lengths, func(n int) bool {
		return a.Fits(n, "0123456789abcdef")
	})
}

// fnmatchValue is the pattern for a value that is a pattern of fnmatch, empty if there is no
// such pattern.
func fnmatchValue(text string, not bool) string {
	glob := translateFnmatch(text)
	if strings.HasPrefix(glob, "!") {
		glob = `\` + glob
	}
	isTrimmed := strings.TrimSpace(text) == text // patterns are trimmed
	if _, err := pattern.Parse(pattern.Text, glob); err != nil || !isTrimmed || !isPrintable(text) {
		return ""
	}
	if not {
		return "!" + glob
	}
	return glob
}
