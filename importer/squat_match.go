package importer

import (
	"fmt"
	"slices"
	"strings"
)

// nodes are groups of one path or one kind of USB device each.
func (c *squatResource) nodes(groups []squatGroup) (matches []table, each string) {
	for _, g := range groups {
		if len(g.usb) == 1 {
			// The bus node alone is taken: the others of the hardware may be
			// another resource's.
			each = "node"
			u := g.usb[0]
			matches = append(matches, c.usbMatch(u))
			if u.serial == "" {
				c.note(fmt.Sprintf("differs: where several devices %s:%s are plugged in, each is a device here; there all were one (each = \"all\" is that)", u.vendor, u.product))
			}
			continue
		}
		for _, p := range g.paths {
			m, ok := c.match(p, false)
			if !ok {
				continue
			}
			// Paths that differ in nothing else are one match.
			if n := len(matches); n > 0 && m.get("container_path") == nil && sameButGlob(matches[n-1], m) {
				globs, _ := matches[n-1][0].value.([]string)
				matches[n-1][0].value = append(globs, m[0].value.([]string)...)
				continue
			}
			matches = append(matches, m)
		}
	}
	return matches, each
}

// sameButGlob reports whether two matches of a glob differ in that alone.
func sameButGlob(a, b table) bool {
	if len(a) != len(b) || len(a) == 0 || a[0].key != "glob" || b[0].key != "glob" {
		return false
	}
	for i := range a[1:] {
		if a[i+1] != b[i+1] {
			return false
		}
	}
	return true
}

// usbMatch selects the bus node of a kind of USB device: the other nodes that
// it has were not handed over.
func (c *squatResource) usbMatch(u squatUSB) table {
	usb := table{{"id", u.vendor + ":" + u.product}}
	if u.serial != "" {
		usb.add("serial", escape(u.serial))
	}
	m := table{{"usb", usb}, {"glob", []string{"/dev/bus/usb/**"}}}
	if c.permissions != "rw" {
		m.add("permissions", "rw")
	}
	return m
}

// match selects what a path matches. It is not ok where the language can't.
func (c *squatResource) match(p squatPath, required bool) (m table, ok bool) {
	glob, at := p.nodes(), p.containerPath()
	if !p.mount {
		if c.notBelowDev(p) {
			return nil, false
		}
		if slices.Contains(directories, p.path) {
			at = p.mountPath
			if at != "" {
				at = strings.TrimSuffix(at, "/") + "/"
			}
		} else if !p.literal && at == "" && strings.Contains(p.path, "/by-") {
			c.note(fmt.Sprintf("differs: nodes that %q leads to have the kernel's names in the container, not those of the links", p.path))
		}
	}
	m.add("glob", []string{glob})
	if p.mount {
		m.add("as", "mount")
		m.add("read_only", p.readOnly)
		c.im.mounts = append(c.im.mounts, p.mountPrefix())
		if at == unescape(p.path) {
			at = ""
		}
	}
	if at != "" {
		m.add("container_path", literal(at))
	}
	if !p.mount && p.permissions != c.permissions {
		m.add("permissions", p.permissions)
	}
	if required {
		m.add("required", true)
	}
	return m, true
}

// pool is one group that is one device.
func (c *squatResource) pool(g squatGroup) (matches []table) {
	for _, u := range g.usb {
		matches = append(matches, c.usbMatch(u))
	}
	for _, p := range g.paths {
		m, ok := c.match(p, !p.optional && len(g.paths) > 1)
		if !ok {
			return nil
		}
		matches = append(matches, m)
	}
	return matches
}

// accompanied is a group of one path with wildcards and others without.
func (c *squatResource) accompanied(g squatGroup) (matches, with []table) {
	for _, p := range g.paths {
		if !p.literal {
			m, ok := c.match(p, false)
			if !ok {
				return nil, nil
			}
			matches = append(matches, m)
			continue
		}
		t, ok := c.companion(p)
		if !ok {
			continue
		}
		with = append(with, t)
		if p.limit == 1 && !p.optional {
			c.note(fmt.Sprintf("differs: %q had limit 1, so that no more than one device was offered; here every device is given it", p.path))
		} else if !p.optional {
			c.note(fmt.Sprintf("differs: %q had limit %d; here every device is given it, however many there are", p.path, p.limit))
		}
	}
	return matches, with
}

// companion is a path that is given along with every device. It is not ok where
// the language can't.
func (c *squatResource) companion(p squatPath) (t table, ok bool) {
	if !p.mount && c.notBelowDev(p) {
		return nil, false
	}
	t = table{{"path", literal(unescape(p.path))}}
	at := p.containerPath()
	if !p.mount && slices.Contains(directories, p.path) {
		t = table{{"glob", p.nodes()}}
		if at != p.path {
			at = strings.TrimSuffix(at, "/") + "/"
		}
	}
	if p.mount {
		t.add("as", "mount")
		t.add("read_only", p.readOnly)
		c.im.mounts = append(c.im.mounts, p.mountPrefix())
	} else if p.permissions != "rw" {
		t.add("permissions", p.permissions)
	}
	if p.optional {
		t.add("optional", true)
	}
	if at != unescape(p.path) {
		t.add("container_path", literal(at))
	}
	return t, true
}

// notBelowDev reports whether a path can't be that of a device node.
func (c *squatResource) notBelowDev(p squatPath) bool {
	if strings.HasPrefix(p.path, "/dev/") {
		return false
	}
	c.note(fmt.Sprintf("not carried over: %q as a device: device nodes are below /dev", p.path))
	return true
}

// hardware is groups of several paths that match several nodes each: what
// was paired by position belongs to one hardware.
func (c *squatResource) hardware(groups []squatGroup) (matches, with []table, each string) {
	first := groups[0]
	for i, p := range first.paths {
		if p.literal && len(groups) == 1 {
			if t, ok := c.companion(p); ok {
				with = append(with, t)
			}
			continue
		}
		m, ok := c.match(p, !p.optional)
		if !ok {
			return nil, nil, ""
		}
		var globs []string
		at := p.containerPath()
		for _, g := range groups {
			if c.notBelowDev(g.paths[i]) {
				return nil, nil, ""
			}
			globs = append(globs, g.paths[i].nodes())
			if g.paths[i].containerPath() != at {
				m = slices.DeleteFunc(m, func(p pair) bool { return p.key == "container_path" })
			}
		}
		m[0].value = globs
		matches = append(matches, m)
	}
	c.note("differs: nodes of one hardware are a device here; there they were paired by their positions in sorted lists")
	return matches, with, "device"
}
