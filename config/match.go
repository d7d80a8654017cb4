package config

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// selectors binds the keys of a match that select nodes and hardware. match and exclude share them.
func (t *table) selectors(m *Match) {
	t.key("glob", m.readGlob,
		"paths on the host: of device nodes below /dev, and elsewhere of files, sockets and directories, as bind mounts")
	t.hardware(
		"usb",
		m,
		`{ id = "10c4:ea60" }`,
		"USB device that the node belongs to: match.usb = {} is any but a root hub",
	)
	t.hardware(
		"pci",
		m,
		`{ id = "10de:2204" }`,
		"PCI function that the node belongs to: match.pci = {} is any but a sub-function",
	)
	t.hardware("net", m, `{ type = "can" }`, "network interfaces: match.net = {} is any")
	t.hardware(
		"mdev",
		m,
		`{ type = "i915-GVTg_V5_4" }`,
		"mediated devices, parts of a PCI function: match.mdev = {} is any",
	)
	t.values(
		"subsystem",
		&m.Subsystem,
		anyText,
		`kernel subsystem of the node, such as "tty", "video4linux" or "block"`,
	)
	t.values("driver", &m.Driver, anyText,
		"driver of the node or interface, or of any device above it up to its hardware")
	t.attributes("attr", &m.Attr, wildAttribute,
		"sysfs attributes and their values: the nearest directory that has the attribute decides, from the node up to its hardware")
}

// readGlob reads the paths of nodes or mounts.
func (m *Match) readGlob(v value) {
	glob := nodeGlob
	m.Mount = v.isOutsideDev()
	if m.Mount {
		glob = mountGlob
	}
	m.Glob = v.values(glob)
}

// isOutsideDev reports whether v has patterns of paths, and none of them is below /dev. Patterns that are no
// absolute paths are mistakes about paths of nodes.
func (v value) isOutsideDev() bool {
	isOutside := false
	for _, e := range v.items() {
		written, _ := e.raw.(string)
		written = strings.TrimSpace(written)
		if strings.HasPrefix(written, "!") {
			continue
		}
		isBelow := strings.HasPrefix(written+"/", devDir) || strings.HasPrefix(written, hostPrefix+devDir)
		if isBelow || !strings.HasPrefix(written, "/") {
			return false
		}
		isOutside = true
	}
	return isOutside
}

// readExclude reads an element of exclude.
func readExclude(v value) Match {
	// exclude has no key for what a container gets, and no count.
	m := Match{Place: v.fullPlace()}
	sound := v.read(func(t *table) {
		t.selectors(&m)
	})
	v.checkMatch(&m, sound)
	return m
}

// readMatch reads an element of match.
func readMatch(v value) Match {
	m := Match{Place: v.fullPlace()}
	// The index is the index of the match in Resource.Match, because each call adds one of both.
	v.r.matches = append(v.r.matches, v)
	sound := v.read(func(t *table) {
		// glob comes first, because it determines the valid container paths.
		t.selectors(&m)
		t.boolean("vfio", &m.VFIO,
			"whether to select the VFIO nodes of the functions or mediated devices that pci or mdev selects")
		t.values("cdi_device", &m.CDIDevice, cdiName, "qualified names of CDI devices of other specs on the host")
		bind(t, "virtual", &m.Virtual, value.virtual, "devices without hardware: a name, a table, or a list of these")
		path := nodePath
		if m.Mount {
			path = companionPath
		}
		t.text("container_path", &m.ContainerPath, path, "path of the nodes of this match in the container")
		t.permissions(&m.Permissions, `what a container may do with the nodes of this match, or "r" (the default) or "rw" for mounts`)
		t.count("count", &m.Count, maxCount, "number of slots of each device of this match")
		t.boolean(
			"required",
			&m.Required,
			"whether hardware, a group or a pool is only a device if it has a node of this match",
		)
		t.boolean("dangerous", &m.Dangerous,
			"whether devices of this match and their companions (with) may be dangerous, which means that they give access to the host itself")
	})
	if m.Mount {
		v.child("glob").needsMounts(m.Glob)
		v.child("permissions").wantMountPermissions(m.Permissions)
		m.ReadOnly = m.Permissions != "rw"
	}
	for _, a := range m.CDIDevice.Alternatives() {
		v.child("cdi_device").needsCDI(a.String(), a.Prefix())
	}
	if m.Dangerous {
		// The author of the configuration consents by this key, and the author of the DaemonSet by
		// --allow. Both are required.
		v.child("dangerous").needs("a device with access to the host itself", allowDangerous, false)
	}
	v.checkMatch(&m, sound)
	return m
}

// attributeKind is a rule for the names of sysfs attributes.
type attributeKind struct {
	// want continues the message about a name that violates it.
	want string
	// special are the characters that names must not have.
	special string
}

// Names support fewer wildcards than values: alternatives and escapes are refused in any case.
var (
	plainAttribute = attributeKind{`want a name such as "state" or "power/runtime_status", without wildcards`, `{\*?[`}
	wildAttribute  = attributeKind{`want a name such as "index" or "rom*/VBNV"`, `{\`}
)

// attributes binds a key to a table of sysfs attributes and their wanted values.
func (t *table) attributes(name string, into *map[string]pattern.Values, k attributeKind, help string) {
	read := func(v value) map[string]pattern.Values {
		return v.attributes(k)
	}
	bind(t, name, into, read, help)
}

// attributes reads v as a table of sysfs attributes and their wanted values.
// An attribute with an invalid name is left out. Invalid values leave an empty condition.
func (v value) attributes(k attributeKind) map[string]pattern.Values {
	if v.table() != nil && v.isEmpty() {
		v.report("the table is empty: want at least one attribute")
	}
	attr := make(map[string]pattern.Values)
	for name, e := range v.userKeys(`such as { state = "enabled" }`, "the name of an attribute") {
		if !v.key(name).violates(name, k.check(name)) {
			attr[name] = e.values(anyText)
		}
	}
	return attr
}

// check returns the rule that the name of an attribute violates. A name is a relative path without "..".
// "**" is not allowed, since it would search whole trees of sysfs.
func (k attributeKind) check(name string) error {
	// Clean changes empty elements, "." and "..". Such a name could leave the directory of the
	// device.
	absolute := "/" + name
	isClean := path.Clean(absolute) == absolute
	hasSpecial := strings.ContainsAny(name, k.special) || strings.Contains(name, "**")
	hasControl := strings.ContainsFunc(name, unicode.IsControl)
	// The remaining names may still be invalid as patterns, for example because of an unclosed
	// class.
	_, err := pattern.Parse(pattern.Path, name)
	if isClean && !hasSpecial && !hasControl && err == nil {
		return nil
	}
	return broken("is not a relative attribute name: " + k.want)
}

// kindOf returns the kind of the values of an attribute. An unknown kind of value accepts any text.
func kindOf(a device.Attribute) kind {
	example := fmt.Sprintf("such as %q", a.Example)
	switch a.Kind {
	case device.PairValue:
		vendor, _, _ := strings.Cut(a.Example, ":")
		rule := "is not a " + strings.ToUpper(a.Table) + " ID"
		want := fmt.Sprintf("%s, four digits each, %s or %q", a.Help, example, vendor+":*")
		return hexadecimal(2, 4, rule, want, a.Name())
	case device.ByteValue:
		return hexadecimal(1, 2, "is not a hexadecimal number", "two digits "+example, "")
	case device.ClassValue:
		return pciClass
	case device.AddressValue:
		return address("a PCI address", "", a.Example)
	case device.SlotValue:
		// A slot is an address without the function. With a function it can be checked as an
		// address.
		return address("a PCI slot", ".0", a.Example)
	case device.NumberValue:
		return kind{
			mode: pattern.Number,
			// These values are decimal in sysfs and in TOML.
			integers: true,
			want:     `a number, or numbers and ranges such as "0,2-7"`,
		}
	case device.WordValue:
		return oneOf(a.Words)
	}
	return anyText
}

// hardware binds a key to a table of attributes of hardware.
// m.Hardware gets an entry even for an empty table, which selects all hardware of that kind.
func (t *table) hardware(name string, m *Match, example, help string) {
	read := func(v value) {
		if m.Hardware == nil {
			m.Hardware = make(map[string]map[string]pattern.Values)
		}
		// Match.NamesHardware must be right even if the value is no table, or each problem would cause
		// others.
		conditions := make(map[string]pattern.Values)
		m.Hardware[name] = conditions
		if v.isTable(example) {
			v.conditions(name, conditions)
		}
	}
	t.keyOf(name, t.formOf(read), read, help)
}

// conditions reads v as a table of attributes of hardware. Package device defines the keys, so that matches,
// variables and listings have the same names.
func (v value) conditions(name string, conditions map[string]pattern.Values) {
	v.read(func(t *table) {
		for _, a := range device.Attributes() {
			if a.Table != name || a.OnlyVariable {
				continue
			}
			read := func(v value) {
				conditions[a.Key] = v.values(kindOf(a))
			}
			t.key(a.Key, read, a.Help)
		}
	})
}

// virtual reads v as devices without hardware: names, tables, or a list of them.
// Devices with an invalid name are left out. An empty list returns nil.
func (v value) virtual() []Virtual {
	if v.isEmpty() {
		v.report(`the list is empty: want at least one device such as "lic-0"`)
	}
	items := v.items()
	// The limit is checked before the devices are created, so that a list over the limit takes no
	// memory.
	v.r.virtual += len(items)
	if v.r.virtual > maxVirtual {
		v.report(fmt.Sprintf("%d virtual devices exceed the limit of %d in a configuration", v.r.virtual, maxVirtual))
		return nil
	}
	var devices []Virtual
	for _, e := range items {
		d := e.virtualDevice()
		// checkVirtual compares the names, and an empty name would be a duplicate of another one.
		if d.Name != "" {
			devices = append(devices, d)
		}
	}
	return devices
}

// virtualDevice reads v as a name or a table. The name of an invalid device is empty.
func (v value) virtualDevice() Virtual {
	switch v.raw.(type) {
	case string:
		return Virtual{Name: v.virtualName()}
	case map[string]*node:
		return readVirtual(v)
	default:
		v.mistyped(`a name such as "lic-0", or a table such as { name = "cam-0", vars = { host = "10.0.0.5" } }`)
		return Virtual{}
	}
}

// readVirtual reads a virtual device that is a table.
func readVirtual(v value) Virtual {
	var d Virtual
	v.read(func(t *table) {
		bind(t, "name", &d.Name, value.virtualName, `letters, digits, "-", "_" and "."`)
		t.require("name", `a name such as "lic-0"`)
		// vars is optional: texts without ${var:NAME} need no values.
		bind(t, "vars", &d.Vars, value.virtualVars, "values of ${var:NAME}, by NAME")
	})
	return d
}

// virtualName reads v as the name of a virtual device, and returns an empty string if it is
// invalid.
func (v value) virtualName() string {
	return v.checked(`a name such as "lic-0"`, func(s string) error {
		// The name becomes the ID of the device and the value of ${virtual}.
		if isName(s) && len(s) <= maxNamePart {
			return nil
		}
		return broken(`is not a valid device name: it must consist of letters, digits, "-", "_" and ".", begin and end with a letter or digit, and have at most 63 characters`)
	})
}

// virtualVars reads the table v with the values of ${var:NAME}.
// Variables with an invalid name or value are left out. The result is never nil.
func (v value) virtualVars() map[string]string {
	vars := make(map[string]string)
	for name, e := range v.userKeys(`of strings such as { host = "10.0.0.5" }`, "") {
		// Other names could not be written in ${var:NAME}.
		if !isName(name) {
			const rule = ` is not a valid variable name: it must consist of letters, digits, "-", "_" and ".", and begin and end with a letter or digit`
			v.key(name).report(quote(name) + rule)
			continue
		}
		s, ok := e.literal("a string")
		if ok {
			vars[name] = s
		}
	}
	return vars
}
