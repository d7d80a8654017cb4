package config

import "slices"

// containerTable is the keys of container; mountTable those of its mounts.
var (
	containerTable = table[Container]{name: "container", keys: []key[Container]{
		{name: "path", form: anyText, read: func(v value, c *Container) { c.Path = v.variables(nodePath) }},
		{name: "permissions", form: anyText, read: func(v value, c *Container) { c.Permissions = v.permissions() }},
		{name: "env", form: entryForm, read: func(v value, c *Container) { c.Env = v.entries("an environment variable", envKey) }, entries: entryTable},
		{name: "annotations", form: entryForm, read: func(v value, c *Container) { c.Annotations = v.entries("an annotation", annotationKey) }, entries: entryTable},
		{name: "mounts", form: oneOrMore(tableForm("mount")), read: func(v value, c *Container) { c.Mounts = v.mounts() }, table: mountTable},
		{name: "cdi", form: anyBoolean, read: func(v value, c *Container) { c.CDI = v.boolean() }},
		{name: "cdi_devices", form: oneOrMore(anyText), read: func(v value, c *Container) { c.CDIDevices = v.cdiDevices() }},
		{name: "follow", form: anyBoolean, read: func(v value, c *Container) { c.NoFollow = !v.boolean() }},
		{name: "owner", form: tableForm("owner"), read: readOwner, table: ownerTable},
		{name: "net_name", form: anyText, read: func(v value, c *Container) { c.NetName = v.variables(netName) }},
		{name: "hooks", form: oneOrMore(tableForm("hook")), read: func(v value, c *Container) {
			if c.Hooks = v.hooks(); len(c.Hooks) > 0 {
				v.needs("running programs as root on the host", allowHooks, func(a Allow) bool { return a.Hooks })
			}
		}, table: hookTable},
		{name: "additional_gids", form: oneOrMore(integerForm(1, maxUnixID)), read: func(v value, c *Container) { c.AdditionalGIDs = v.additionalGIDs() }},
	}}
	mountTable = table[Mount]{name: "mount", keys: []key[Mount]{
		{name: "host_path", form: anyText, want: "host_path and container_path", read: func(v value, m *Mount) {
			m.HostPath = v.variables(mountHost)
			v.needsMountOf(m.HostPath)
		}},
		{name: "container_path", form: anyText, want: "host_path and container_path", read: func(v value, m *Mount) { m.ContainerPath = v.variables(mountContainer) }},
		{name: "read_only", form: anyBoolean, read: func(v value, m *Mount) { m.ReadOnly = v.boolean() }},
		{name: "optional", form: anyBoolean, read: func(v value, m *Mount) { m.Optional = v.boolean() }},
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
		out = append(out, m)
	}
	return out
}
