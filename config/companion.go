package config

import (
	"strings"

	"github.com/generic-dp/generic-dp/pattern"
)

// companionTable is the keys of with.
var companionTable = table[Companion]{name: "with", keys: []key[Companion]{
	// as comes first: it decides what path, glob and container_path may be.
	{name: "as", form: oneOfWords(asMount), read: func(v value, c *Companion) { oneOf(v, asMount); c.Mount = true }},
	{name: "path", form: anyText, read: func(v value, c *Companion) {
		if c.Path = v.variables(c.hostRole()); c.Mount {
			v.needsMountOf(c.Path)
		}
	}},
	{name: "glob", form: anyText, read: readCompanionGlob},
	{name: "container_path", form: anyText, read: func(v value, c *Companion) { c.ContainerPath = v.variables(companionPath) }},
	{name: "optional", form: anyBoolean, read: func(v value, c *Companion) { c.Optional = v.boolean() }},
	{name: "permissions", form: anyText, read: func(v value, c *Companion) { c.Permissions = v.permissions() }},
	{name: "read_only", form: anyBoolean, read: func(v value, c *Companion) { c.ReadOnly = v.boolean() }},
}}

// hostRole: a node is below /dev, what is mounted is anywhere.
func (c *Companion) hostRole() role {
	if c.Mount {
		return mountHost
	}
	return companionNode
}

func readCompanionGlob(v value, c *Companion) {
	s, ok := v.text(`a pattern such as "/dev/snd/*"`)
	if !ok {
		return
	}
	if strings.Contains(s, "${") {
		v.report(quote(s)+" has a variable: want a pattern without", "variables go into path")
		return
	}
	k := nodeGlob
	if c.Mount {
		k = pathGlob
	}
	p, rule, hint := k.parsePositive(s)
	if rule != "" {
		v.report(quote(s)+" "+rule, hint)
		return
	}
	c.Glob = pattern.NewValues(p)
	if c.Mount {
		v.needsMounts(c.Glob)
	}
}

// companions is v as one companion or a list of them.
func (v value) companions() []Companion {
	var out []Companion
	for _, e := range v.tables("path") {
		c := Companion{Place: e.fullPlace(), ReadOnly: true, Permissions: defaultPermissions}
		readTable(e, companionTable, &c)
		switch {
		case e.has("path") && e.has("glob"):
			e.report("both path and glob: want one of them", "")
		case !e.has("path") && !e.has("glob"):
			e.report("neither path nor glob: want one of them", "")
		}
		switch {
		case c.Mount && e.has("permissions"):
			e.child("permissions").report("a mount has no permissions: want read_only", "")
		case !c.Mount && e.has("read_only"):
			e.child("read_only").report(`a device node is not read-only: want permissions, or as = "mount"`, `permissions = "r" is a node for reading`)
		}
		out = append(out, c)
	}
	return out
}
