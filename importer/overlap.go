package importer

import (
	"path"
	"slices"
	"strings"
)

// mountPrefix is at or above all that a mounted path matches.
func (p squatPath) mountPrefix() string {
	if p.literal {
		return unescape(p.path)
	}
	return path.Dir(unescape(p.path[:strings.IndexAny(p.path, `*?[`)] + "x"))
}

// headMounts says which flags the mounts need.
func (im *importing) headMounts() {
	if len(im.mounts) == 0 {
		return
	}
	slices.Sort(im.mounts)
	im.head("Mounts have to be allowed where generic-dp runs: --allow=mount:" + strings.Join(slices.Compact(im.mounts), ",mount:"))
}

// shareOverlaps lets resources share the nodes that several of them may
// select, where shares says so of either: the other programs count each
// resource for itself.
func (im *importing) shareOverlaps(shares func(*resource) bool) {
	for i, a := range im.out.resources {
		for _, b := range im.out.resources[:i] {
			if !shares(a) && !shares(b) || !overlap(a, b) {
				continue
			}
			for _, r := range []*resource{a, b} {
				if r.pairs.get("shared") == nil {
					r.note("What it selects, another resource may select too: both hand it out, each to as many containers as its count says.")
					at := slices.IndexFunc(r.pairs, func(p pair) bool { return p.key == "match" })
					r.pairs = slices.Insert(r.pairs, at, pair{"shared", true})
				}
			}
		}
	}
}

// overlap reports whether two resources may select the same device: the same
// node, or one of hardware that the other takes whole. It errs to yes.
func overlap(a, b *resource) bool {
	whole := takesHardware(a) || takesHardware(b)
	for _, m := range a.pairs.get("match").([]table) {
		for _, n := range b.pairs.get("match").([]table) {
			if m.get("as") != nil || n.get("as") != nil || !sameUSB(m, n) {
				continue
			}
			for _, g := range m.get("glob").([]string) {
				if slices.ContainsFunc(n.get("glob").([]string), func(h string) bool {
					return mayMeet(g, h) || whole && oneHardware(g, h)
				}) {
					return true
				}
			}
		}
	}
	return false
}

// takesHardware reports whether what a resource selects is taken together with
// all that its hardware has.
func takesHardware(r *resource) bool {
	switch r.pairs.get("each") {
	case "device":
		return true
	case "all":
		return slices.ContainsFunc(r.pairs.get("match").([]table), func(m table) bool { return m.get("usb") != nil })
	}
	return false
}

// families of nodes that one hardware may have: those of graphics cards, and,
// as empty, of nodes that have no hardware. All others are one family, since
// USB devices may have any of them.
var families = []struct{ prefix, family string }{
	{"/dev/dri/", "graphics"}, {"/dev/fb", "graphics"}, {"/dev/accel", "graphics"}, {"/dev/nvidia", "graphics"},
	{"/dev/fuse", ""}, {"/dev/kvm", ""}, {"/dev/kfd", ""}, {"/dev/net/tun", ""}, {"/dev/vhost-", ""}, {"/dev/loop", ""},
	{"/dev/uinput", ""}, {"/dev/uhid", ""}, {"/dev/dma_heap/", ""}, {"/dev/vfio/vfio", ""},
}

// oneHardware reports whether nodes of two patterns may be of one hardware.
func oneHardware(g, h string) bool {
	a, b := family(g), family(h)
	return a == b && a != ""
}

func family(pattern string) string {
	for _, f := range families {
		if strings.HasPrefix(pattern, f.prefix) {
			return f.family
		}
	}
	return "any"
}

// mayMeet reports whether two patterns may match the same path, by what they
// begin with: it errs to yes.
func mayMeet(g, h string) bool {
	p, q := beginning(g), beginning(h)
	switch {
	case p == g && q == h:
		return p == q
	case p == g:
		return strings.HasPrefix(p, q)
	case q == h:
		return strings.HasPrefix(q, p)
	}
	return strings.HasPrefix(p, q) || strings.HasPrefix(q, p)
}

// sameUSB reports whether the usb tables of two matches may hold for one device.
func sameUSB(m, n table) bool {
	a, _ := m.get("usb").(table)
	b, _ := n.get("usb").(table)
	if a == nil || b == nil {
		return true
	}
	return a.get("id") == b.get("id") && (a.get("serial") == nil || b.get("serial") == nil || a.get("serial") == b.get("serial"))
}
