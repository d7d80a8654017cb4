package config

import (
	"slices"
	"strings"
)

// readMount reads an element of container.mounts. Mounts are read-only by default, because the
// author of the configuration may not intend that containers write to the host.
func readMount(v value) Companion {
	m := Companion{Place: v.fullPlace(), Mount: true, ReadOnly: true}
	v.read(func(t *table) {
		t.text("host_path", &m.Path, mountPath, "absolute path on the host")
		t.require("host_path", "an absolute path on the host", "")
		t.text("container_path", &m.ContainerPath, mountPath, "absolute path in the container")
		t.require("container_path", "an absolute path in the container", "")
		t.boolean("read_only", &m.ReadOnly, "whether a mount is read-only")
		t.boolean("optional", &m.Optional, "whether to leave out the mount while host_path is missing")
	})
	// The path of the host is the privilege. Where it appears in the container is free.
	v.child("host_path").needsMountOf(m.Path)
	return m
}

// asMount is the only value of the key as. Without the key, nodes are injected.
const asMount = "mount"

// as binds the key that selects files and directories instead of nodes.
func (t *table) as(mount *bool, help string) {
	// An enum, so that editors suggest the value.
	asForm := func() form {
		return form{"enum": []string{asMount}}
	}
	read := func(v value) {
		word(v, []string{asMount})
		*mount = true // also after a misspelling: the intent is clear
	}
	t.key("as", asForm, read, help)
}

// readCompanion reads an element of with. It has one table for nodes and mounts: as decides which
// of the other keys are valid.
func readCompanion(v value) Companion {
	c := Companion{
		Place:       v.fullPlace(),
		ReadOnly:    true,
		Permissions: defaultPermissions,
	}
	v.read(func(t *table) {
		// as comes first, because it determines the valid paths and globs.
		t.as(&c.Mount, `"mount": files and directories, as bind mounts`)
		path := companionNode
		glob := nodeGlob
		if c.Mount {
			path = mountPath
			glob = mountGlob
		}
		// Both keys set the same field. checkCompanionPath reports a table with both.
		t.text("path", &c.Path, path, "path of a device node")
		t.text("host_path", &c.Path, path, "path of a file or directory to mount")
		readGlob := func(v value) {
			c.Glob = v.glob(glob)
		}
		t.key("glob", stringForm, readGlob, "one pattern without variables, instead of path or host_path")
		t.text("container_path", &c.ContainerPath, companionPath,
			`path in the container; a "/" at the end is a directory to put nodes in`)
		t.boolean("optional", &c.Optional, "whether a device without the companion is Healthy")
		t.permissions(&c.Permissions, "permissions of a device node")
		t.boolean("read_only", &c.ReadOnly, "whether a mount is read-only")
	})
	v.checkCompanionPath(&c)
	if c.Mount && v.has("permissions") {
		v.child("permissions").report("is only for device nodes: use read_only for a mount", "")
	}
	v.refuseReadOnlyNode(c.Mount)
	return c
}

// checkCompanionPath reports a companion that does not have exactly one path or glob, and records
// the mount that it requests. It asks for the keys in the text and not for the fields, because the
// field of an invalid path is empty.
func (v value) checkCompanionPath(c *Companion) {
	given := slices.DeleteFunc([]string{"host_path", "path", "glob"}, func(key string) bool {
		return !v.has(key)
	})
	if len(given) == 0 {
		v.report("missing key: want one of path, host_path and glob", "")
		return
	}
	if len(given) > 1 {
		v.report(strings.Join(given, " and ")+" cannot be combined: want one of them", "")
		return
	}
	key := given[0]
	if !c.Mount {
		// Nodes are not checked here: package matchers refuses dangerous ones when it knows which
		// nodes exist.
		if key == "host_path" {
			v.child(key).report(`is only for mounts: use path for a device node, or as = "mount"`, "")
		}
		return
	}
	if key == "glob" {
		v.child(key).needsMounts(c.Glob)
		return
	}
	v.child(key).needsMountOf(c.Path)
	if key == "path" {
		// Older configurations have path here, so that it is only a note.
		v.child(key).note("the path of a mount is called host_path, as in container.mounts; path is still accepted", "")
	}
}

// refuseReadOnlyNode reports read_only for a device node, which has permissions instead. Ignoring
// the key would leave a node writable that its author believes to be read-only.
func (v value) refuseReadOnlyNode(mount bool) {
	if mount || !v.has("read_only") {
		return
	}
	v.child("read_only").report(
		`is only for mounts: use permissions for a device node, or as = "mount"`,
		`permissions = "r" only allows reading`,
	)
}
