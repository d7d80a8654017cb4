package config

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/device"
)

// containerTable is the keys of container; mountTable those of its mounts.
var (
	containerTable = table[Container]{keys: []key[Container]{
		{name: "path", read: func(v value, c *Container) { c.Path = v.variables(nodePath) }},
		{name: "permissions", read: func(v value, c *Container) { c.Permissions = v.permissions() }},
		{name: "env", read: func(v value, c *Container) { c.Env = v.entries("an environment variable", envKey) }},
		{name: "annotations", read: func(v value, c *Container) { c.Annotations = v.entries("an annotation", annotationKey) }},
		{name: "mounts", read: func(v value, c *Container) { c.Mounts = v.mounts() }, table: mountTable},
		{name: "cdi", read: func(v value, c *Container) { c.CDI = v.boolean() }},
	}}
	mountTable = table[Mount]{keys: []key[Mount]{
		{name: "host_path", read: func(v value, m *Mount) { m.HostPath = v.variables(mountHost) }},
		{name: "container_path", read: func(v value, m *Mount) { m.ContainerPath = v.variables(mountContainer) }},
		{name: "read_only", read: func(v value, m *Mount) { m.ReadOnly = v.boolean() }},
		{name: "optional", read: func(v value, m *Mount) { m.Optional = v.boolean() }},
	}}
)

// defaultPermissions of device nodes: mknod is nobody's business.
const defaultPermissions = "rw"

// permissions is v as some of "rwm", in that order.
func (v value) permissions() string {
	const want = `want some of "r", "w" and "m", each once`
	s, ok := v.text(`some of "r", "w" and "m"`)
	if !ok {
		return ""
	}
	out := ""
	for _, p := range "rwm" {
		for _, q := range s {
			if p == q {
				out += string(p)
			}
		}
	}
	if s == "" || len(out) != len(s) || len(slices.Compact([]byte(out))) != len(s) {
		v.report(quote(s)+" is no set of permissions: "+want, "")
		return ""
	}
	return out
}

// mounts is v as a list of mounts, or one.
func (v value) mounts() []Mount {
	var out []Mount
	for _, e := range v.tables("") {
		m := Mount{ReadOnly: true}
		readTable(e, mountTable, &m)
		for _, name := range []string{"host_path", "container_path"} {
			if e.lacks(name) {
				e.report("no "+name+": want host_path and container_path", "")
			}
		}
		out = append(out, m)
	}
	return out
}

// entries is the table v with keys of the user's own, sorted by them.
func (v value) entries(what string, keys role) []device.Entry {
	m, ok := v.raw.(map[string]any)
	if !ok {
		v.mistyped("a table of strings", "")
		return nil
	}
	var out []device.Entry
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if above, ok := v.enclosing(name); ok {
			v.report(quote(name)+" is a key of "+tableName(above)+": want the name of "+what, v.headerHint(above))
			continue
		}
		e := v.child(name)
		if _, ok := e.text("a string"); !ok {
			continue
		}
		value := e.variables(entryValue)
		out = append(out, device.Entry{
			Key:       v.of(name).variables(keys),
			Value:     value,
			PerDevice: v.w.variables.perDevice(value),
		})
	}
	return out
}
