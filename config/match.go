package config

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// hardware binds a key to a table of attributes of hardware.
func (t *table) hardware(name string, m *Match, example, help string) {
	var conditions map[string]pattern.Values
	if t.has(name) {
		conditions = make(map[string]pattern.Values)
		if m.Hardware == nil {
			m.Hardware = make(map[string]map[string]pattern.Values)
		}
		m.Hardware[name] = conditions
	}
	t.table(name, func(v value) {
		v.read(func(t *table) {
			for _, a := range attributes() {
				if a.Table == name {
					t.key(a.Key, a.kind.form, func(v value) {
						conditions[a.Key] = v.values(a.kind)
					}, a.Help)
				}
			}
		})
	}, example, help)
}

// selectors binds the keys of a match that select nodes and hardware.
func (t *table) selectors(m *Match) {
	glob := nodeGlob
	if m.Mount {
		glob = mountGlob
	}
	t.values("glob", &m.Glob, glob, "paths of device nodes on the host, below /dev")
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
		"driver of the node: of the nearest sysfs directory above it that has one, up to its hardware")
	t.attributes("attr", &m.Attr, wildAttribute,
		"sysfs attributes and their values: the nearest directory that has the attribute decides, from the node up to its hardware")
}

func readExclude(v value) Match {
	m := Match{Place: v.fullPlace()}
	sound := v.read(func(t *table) {
		t.selectors(&m)
	})
	v.checkMatch(&m, sound)
	return m
}

func readMatch(v value) Match {
	m := Match{Place: v.fullPlace(), ReadOnly: true}
	v.r.matches = append(v.r.matches, v)
	sound := v.read(func(t *table) {
		// as comes first: it determines the valid globs and container paths.
		t.as(&m.Mount, `"mount": files, sockets or directories that glob selects, as bind mounts`)
		t.selectors(&m)
		t.boolean("vfio", &m.VFIO,
			"whether to select the VFIO nodes of the functions or mediated devices that pci or mdev selects")
		t.values("cdi_device", &m.CDIDevice, cdiName, "qualified names of CDI devices of other specs on the host")
		t.key("virtual", func() form {
			table := t.belowUserKeys("virtual", func(v value) {
				readVirtual(v)
			})
			return oneOrMore(form{"anyOf": []form{stringForm(), table}})
		}, func(v value) {
			m.Virtual = v.virtual()
		}, "devices without hardware: a name, a table, or a list of these")
		path := nodePath
		if m.Mount {
			path = companionPath
		}
		t.text("container_path", &m.ContainerPath, path, "path of the nodes of this match in the container")
		t.permissions(&m.Permissions, "what a container may do with the nodes of this match")
		t.boolean("read_only", &m.ReadOnly, "whether a mount is read-only")
		t.boolean(
			"required",
			&m.Required,
			"whether hardware, a group or a pool without a node of this match is no device",
		)
		t.boolean("dangerous", &m.Dangerous,
			"whether devices of this match, their companions (with) and cdi_devices may be dangerous, that is, give access to the host itself")
	})
	if m.Mount {
		v.child("glob").needsMounts(m.Glob)
	}
	for _, a := range m.CDIDevice.Alternatives() {
		v.child("cdi_device").needsCDI(a.String(), a.Prefix())
	}
	m.ReadOnly = m.ReadOnly && m.Mount
	if m.Dangerous {
		v.child("dangerous").needs(
			"a device with access to the host itself",
			allowDangerous,
			func(a Allow) bool { return a.Dangerous },
		)
	}
	v.checkMatch(&m, sound)
	return m
}

// attributeKind is the kind of the names of attributes.
type attributeKind struct {
	want string
	wild bool // with wildcards
}

var (
	plainAttribute = attributeKind{want: `want a name such as "state" or "power/runtime_status", without wildcards`}
	wildAttribute  = attributeKind{want: `want a name such as "index" or "rom*/VBNV"`, wild: true}
)

// attributes binds a key to a table of attributes and their wanted values.
func (t *table) attributes(name string, into *map[string]pattern.Values, k attributeKind, help string) {
	t.key(name, func() form {
		return userKeysForm(stringsForm())
	}, func(v value) {
		*into = v.attributes(k)
	}, help)
}

func (v value) attributes(k attributeKind) map[string]pattern.Values {
	if v.keys() != nil && v.isEmpty() {
		v.report("the table is empty: want at least one attribute", "")
	}
	attr := make(map[string]pattern.Values)
	for name, e := range v.userKeys(`such as { state = "enabled" }`, "the name of an attribute") {
		if rule := k.check(name); rule != "" {
			v.key(name).report(quote(name)+" "+rule, "")
		} else {
			attr[name] = e.values(anyText)
		}
	}
	return attr
}

// check returns the rule that the name of an attribute violates, or empty.
func (k attributeKind) check(name string) string {
	special := `{\`
	if !k.wild {
		special += "*?["
	}
	_, err := pattern.Parse(pattern.Path, name)
	if err != nil || path.Clean("/"+name) != "/"+name || strings.ContainsAny(name, special) ||
		strings.Contains(name, "**") || strings.ContainsFunc(name, unicode.IsControl) {
		return "is not a relative attribute name: " + k.want
	}
	return ""
}

// virtual reads v as devices without hardware: names, tables, or a list of them.
func (v value) virtual() (devices []Virtual) {
	if v.isEmpty() {
		v.report(`the list is empty: want at least one device such as "lic-0"`, "")
	}
	items := v.items()
	if v.r.virtual += len(items); v.r.virtual > maxVirtual {
		v.report(fmt.Sprintf("%d virtual devices exceed the limit of %d in a configuration", v.r.virtual, maxVirtual), "")
		return nil
	}
	for _, e := range items {
		var d Virtual
		switch e.raw.(type) {
		case string:
			d.Name = e.virtualName()
		case map[string]any:
			d = readVirtual(e)
		default:
			e.mistyped(`a name such as "lic-0", or a table such as { name = "cam-0", vars = { host = "10.0.0.5" } }`, "")
		}
		if d.Name != "" {
			devices = append(devices, d)
		}
	}
	return devices
}

func readVirtual(v value) (d Virtual) {
	v.read(func(t *table) {
		t.key("name", stringForm, func(v value) {
			d.Name = v.virtualName()
		}, `letters, digits, "-", "_" and "."`)
		t.require("name", `a name such as "lic-0"`, "")
		t.key("vars", stringTable, func(v value) {
			d.Vars = v.virtualVars()
		}, "values of ${var:NAME}, by NAME")
	})
	return d
}

// virtualName reads v as the name of a virtual device, empty if it is invalid.
func (v value) virtualName() string {
	return v.checked(`a name such as "lic-0"`, func(s string) (rule, hint string) {
		if !isName(s) || len(s) > maxNamePart {
			rule = `is not a valid device name: it must consist of letters, digits, "-", "_" and ".", begin and end with a letter or digit, and have at most 63 characters`
		}
		return rule, ""
	})
}

// virtualVars reads the table v with the values of ${var:NAME}.
func (v value) virtualVars() map[string]string {
	vars := make(map[string]string)
	for name, e := range v.userKeys(`of strings such as { host = "10.0.0.5" }`, "") {
		if !isName(name) {
			v.key(name).report(quote(name)+` is not a valid variable name: it must consist of letters, digits, "-", "_" and ".", and begin and end with a letter or digit`, "")
		} else if s, ok := e.literal("a string"); ok {
			vars[name] = s
		}
	}
	return vars
}
