package importer

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// directories of /dev that hold nodes. Handed over as a device, a directory is
// all nodes in it to container runtimes; a pattern has to say so.
var directories = []string{
	"/dev/block", "/dev/bus", "/dev/bus/usb", "/dev/char", "/dev/cpu", "/dev/disk", "/dev/dma_heap", "/dev/dri", "/dev/dvb",
	"/dev/infiniband", "/dev/input", "/dev/mapper", "/dev/net", "/dev/serial", "/dev/snd", "/dev/usb", "/dev/v4l", "/dev/vfio",
}

// deep is the pattern of all that is below a directory.
func deep(dir string) string { return escape(dir) + "/**" }

// nodes is the pattern of what a path hands over.
func (p squatPath) nodes() string {
	if !p.mount && slices.Contains(directories, p.path) {
		return deep(p.path)
	}
	return p.glob
}

// squatForm is what a group looks like in the language; groups of one form can
// be one resource.
type squatForm string

const (
	// nodeForm: every node or path is a device.
	nodeForm squatForm = "node"
	// poolForm: everything together is one device.
	poolForm squatForm = "all"
	// withForm: every node is a device, and is given others along.
	withForm squatForm = "with"
	// hardwareForm: the nodes of one hardware are one device.
	hardwareForm squatForm = "device"
)

// convert makes the resources of a device: one, but where its groups are of
// forms that one resource can't have.
func (d squatDevice) convert(im *importing) []*resource {
	type part struct {
		form   squatForm
		groups []squatGroup
	}
	var parts []*part
	for _, g := range d.groups {
		form := g.form()
		if i := slices.IndexFunc(parts, func(p *part) bool {
			return p.form == form && (form == nodeForm || form == poolForm && alike(p.groups[0], g))
		}); i >= 0 {
			parts[i].groups = append(parts[i].groups, g)
			continue
		}
		parts = append(parts, &part{form, []squatGroup{g}})
	}
	var out []*resource
	for _, p := range parts {
		if p.form == poolForm && len(p.groups) > 1 {
			p.form = hardwareForm
		}
		c := &squatResource{im: im, device: d, r: &resource{}}
		name := d.name
		if len(out) > 0 {
			name = fmt.Sprintf("%s-%d", d.name, len(out)+1)
			c.note(fmt.Sprintf("not carried over: %s as a part of %q: its devices are made in another way, so that they are a resource of their own, %q", p.groups[0].word(d), d.name, name))
		}
		c.r.pairs.add("name", name)
		c.convert(p.form, p.groups)
		if c.r.pairs.get("match") != nil {
			out = append(out, c.r)
		} else {
			im.warnAhead(d.at.place, "not carried over: nothing is left of it to select")
		}
	}
	if len(parts) == 0 {
		im.warnAhead(d.at.place, "not carried over: it has no paths and no usb")
	}
	return out
}

// word is how a comment speaks of a group.
func (g squatGroup) word(d squatDevice) string {
	return strings.TrimPrefix(g.at.place, d.at.place+": ")
}

// form of a group.
func (g squatGroup) form() squatForm {
	wild := 0
	for _, p := range g.paths {
		if !p.literal {
			wild++
		}
	}
	switch {
	case len(g.usb) > 1:
		return poolForm
	case len(g.paths) == 1 && slices.Contains(directories, g.paths[0].path) && !g.paths[0].mount:
		return poolForm
	case len(g.paths) <= 1:
		return nodeForm
	case wild == 0:
		return poolForm
	case wild == 1:
		return withForm
	}
	return hardwareForm
}

// alike reports whether two groups of several paths each are the same kind of
// thing under other paths.
func alike(a, b squatGroup) bool {
	if len(a.paths) != len(b.paths) || len(a.paths) < 2 {
		return false
	}
	for i := range a.paths {
		p, q := a.paths[i], b.paths[i]
		if p.mount || q.mount || p.permissions != q.permissions || p.optional != q.optional {
			return false
		}
		if p.containerPath() != q.containerPath() && (p.mountPath != "" || q.mountPath != "") {
			return false
		}
	}
	return true
}

// containerPath is the path in the container, empty where it is the host's,
// which is not known yet.
func (p squatPath) containerPath() string {
	host := unescape(p.path)
	switch {
	case p.mountPath == "" && p.literal:
		return host
	case strings.HasSuffix(p.mountPath, "/") && p.literal:
		return p.mountPath + path.Base(host)
	}
	return p.mountPath
}

// squatResource is a resource in the making.
type squatResource struct {
	im     *importing
	device squatDevice
	r      *resource
	// permissions that most nodes have.
	permissions string
}

func (c *squatResource) note(text string) { c.r.note(c.im.warn(c.device.at.place, text)) }

// convert fills in the keys of the resource.
func (c *squatResource) convert(form squatForm, groups []squatGroup) {
	c.permissions = commonPermissions(groups)
	var matches, with []table
	each := ""
	switch form {
	case nodeForm:
		matches, each = c.nodes(groups)
	case poolForm:
		matches, each = c.pool(groups[0]), "all"
	case withForm:
		matches, with = c.accompanied(groups[0])
	case hardwareForm:
		matches, with, each = c.hardware(groups)
	}
	if len(matches) == 0 {
		return
	}
	if n := c.count(groups); n > 1 {
		c.r.pairs.add("count", n)
	}
	if each != "" {
		c.r.pairs.add("each", each)
	}
	// What is the same for all nodes is said once.
	var container table
	if len(matches) == 1 {
		if at, ok := matches[0].get("container_path").(string); ok && matches[0].get("as") == nil {
			container.add("path", at)
			matches[0] = slices.DeleteFunc(matches[0], func(p pair) bool { return p.key == "container_path" })
		}
	}
	c.r.pairs.add("match", matches)
	if len(with) > 0 {
		c.r.pairs.add("with", with)
	}
	if c.permissions != "" && c.permissions != "rw" {
		container.add("permissions", c.permissions)
	}
	if len(container) > 0 {
		c.r.pairs.add("container", container)
	}
}

// commonPermissions are those that the most nodes have, empty where there are
// none.
func commonPermissions(groups []squatGroup) string {
	votes, best := map[string]int{}, ""
	for _, g := range groups {
		for _, p := range g.paths {
			if !p.mount {
				votes[p.permissions]++
				if votes[p.permissions] > votes[best] {
					best = p.permissions
				}
			}
		}
		if len(g.usb) > 0 {
			votes["rw"]++
			if votes["rw"] > votes[best] {
				best = "rw"
			}
		}
	}
	return best
}

// count of the resource: groups have their own, a resource has one.
func (c *squatResource) count(groups []squatGroup) int {
	n := groups[0].count
	for _, g := range groups {
		if g.count != n {
			n = min(n, g.count)
		}
	}
	for _, g := range groups {
		if g.count != n {
			c.note(fmt.Sprintf("not carried over: the count of %d of %s: a resource has one count, here the least", g.count, g.word(c.device)))
		}
	}
	const most = 10000
	if n > most {
		c.note(fmt.Sprintf("not carried over: the count of %d: at most %d is taken", n, most))
		n = most
	}
	return n
}
