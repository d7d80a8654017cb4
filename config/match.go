package config

import (
	"path"
	"strings"
	"unicode"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// selectors binds the keys of a match that select nodes and hardware. match and exclude share them.
func (t *table) selectors(m *Match) {
	t.key("glob", nodeGlob.form(), m.readGlob,
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
		bind(t, "virtual", oneOrMore(orTable(stringForm, readVirtual)), &m.Virtual, value.virtual, "devices without hardware: a name, a table, or a list of these")
		path := nodePath
		if m.Mount {
			path = companionPath
		}
		t.text("container_path", &m.ContainerPath, path, "path of the nodes of this match in the container")
		t.permissions(&m.Permissions, `what a container may do with the nodes of this match, or "r" (the default) or "rw" for mounts`)
		t.integer("count", &m.Count, 1, maxCount, "number of slots of each device of this match")
		t.boolean(
			"required",
			&m.Required,
			"whether hardware, a group or a pool is only a device if it has a node of this match",
		)
		t.boolean("dangerous", &m.Dangerous,
			"whether devices of this match, their companions (with) and cdi_devices may be dangerous, which means that they give access to the host itself")
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
		v.child("dangerous").needs("a device with access to the host itself", allowDangerous)
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
	bind(t, name, stringsTable, into, read, help)
}

// attributes reads v as a table of sysfs attributes and their wanted values.
// An attribute with an invalid name is left out. Invalid values leave an empty condition.
func (v value) attributes(k attributeKind) map[string]pattern.Values {
	if v.table() != nil && v.isEmpty() {
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

// check returns the rule that the name of an attribute violates, or an empty string. A name is a relative
// path without "..". "**" is not allowed, since it would search whole trees of sysfs.
func (k attributeKind) check(name string) string {
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
		return ""
	}
	return "is not a relative attribute name: " + k.want
}
