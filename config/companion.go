package config

import (
	"strings"
)

// readCompanion reads an element of with. A path outside of /dev is a mount. Below /dev, the host decides
// whether it is a device node or a mount.
func readCompanion(v value) Companion {
	c := Companion{
		Place:       v.fullPlace(),
		Permissions: defaultPermissions,
	}
	v.read(func(t *table) {
		t.key("path", stringForm, c.readPath, "path of a device node, file, socket or directory, or a pattern without variables")
		t.require("path", `a path such as "/dev/kfd"`, "")
		t.text("container_path", &c.ContainerPath, companionPath,
			`path in the container; a "/" at the end is a directory to put nodes in`)
		t.boolean("optional", &c.Optional, "whether a device without the companion is Healthy")
		t.permissions(&c.Permissions, `permissions of a device node, or "r" or "rw" of a mount`)
	})
	// Containers only write to files of the host if the author of the configuration says so.
	c.ReadOnly = !v.has("permissions") || !strings.Contains(c.Permissions, "w")
	if c.Mount {
		v.child("permissions").wantMountPermissions(c.Permissions)
	}
	return c
}

// readPath reads v as the path or the pattern of a companion, and records the mount that it
// requests.
func (c *Companion) readPath(v value) {
	written, _ := v.raw.(string)
	hasVariable := strings.Contains(written, "${")
	isPattern := !hasVariable && strings.ContainsAny(written, `*?[{\`)
	switch {
	case isPattern && strings.HasPrefix(written, devDir):
		c.Glob = v.glob(nodeGlob)
	case isPattern:
		c.Glob = v.glob(mountGlob)
		c.Mount = true
		v.needsMounts(c.Glob)
	default:
		c.Path = v.text(hostPath)
		// Variables are not known yet, but the values of most of them have no "/".
		c.Mount = len(c.Path) > 0 && !strings.HasPrefix(sample(c.Path), devDir)
		if c.Mount {
			v.needsMount(c.Path.String(), c.Path[0].Literal, len(c.Path.Vars()) == 0)
		}
	}
}

// wantMountPermissions reports permissions that a mount cannot have. v may be missing.
func (v value) wantMountPermissions(permissions string) {
	isGiven := v.raw != nil
	if isGiven && permissions != "r" && permissions != "rw" {
		v.report(quote(permissions)+` is for device nodes: want "r" or "rw" for a mount`, "")
	}
}
