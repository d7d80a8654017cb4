package importer

import (
	"reflect"
	"slices"
	"strings"
)

// Other plugins do not know of each other's devices, and not even of other resources of their
// own: two resources may both offer /dev/ttyUSB0, and a container each gets it. Ours gives a
// device to the first resource unless both are shared. The import therefore shares resources
// whose globs may match the same node, where the other plugin would have given it to both.

// finish resolves conflicts between resources: equal names and common devices. It also sets
// their default domain.
func (c *conversion) finish() {
	for i, r := range c.resources {
		c.disable(r, c.resources[:i])
	}
	// A resource that is the same as an earlier one needs no comment. Pulumi's state, for
	// example, has everything twice.
	c.resources = slices.DeleteFunc(c.resources, func(r *resource) bool {
		return r.disabled && len(r.comments) == 0
	})
	c.shareOverlaps()
	for _, r := range c.resources {
		if r.mayBeDangerous() {
			r.differs(r.at, "differs: disks, memory and the like need dangerous = true in their match, and --allow=dangerous")
		}
		domain, name, _ := strings.Cut(r.Name, "/")
		if c.defaultDomain == "" {
			c.defaultDomain = domain
		}
		if domain == c.defaultDomain {
			r.Name = name
		}
	}
}

// disable disables a resource without matches, or with the name of an earlier resource.
func (c *conversion) disable(r *resource, earlier []*resource) {
	if len(r.Match) == 0 {
		r.disabled = true
		r.Match = r.tooBroad
	}
	for _, other := range earlier {
		if !r.collides(other) {
			continue
		}
		r.disabled = true
		if lines("", reflect.ValueOf(*r)) != lines("", reflect.ValueOf(*other)) {
			r.differs(r.at, "not imported: another configuration has this name above: put this resource into a file for its own nodes only")
		}
		return
	}
}

// collides reports whether two resources have one name on the same nodes. Resources whose
// names have variables may share a name.
func (r *resource) collides(other *resource) bool {
	hasNodes := r.When.NodeName != "" && other.When.NodeName != ""
	onOtherNodes := hasNodes && r.When.NodeName != other.When.NodeName
	sameName := other.Name == r.Name && !strings.Contains(r.Name, "${")
	return sameName && !other.disabled && !onOtherNodes
}

// dangerous are names of nodes that give access to the host itself, for a warning: the host
// decides by number and subsystem.
const dangerous = `/dev/((sd|vd|hd|xvd)[a-z*?[].*|(nvme|mmcblk|loop|nbd|dm-|md|sr|sg|mtd|ipmi|mei)[0-9*?[].*|(mapper|disk|block|cpu|zvol)/.*|mem|kmem|port|kmsg|console|vcio|vc-mem|uinput|uhid|tty[0-9].*|(watchdog|usbmon|vport|vcs[au]?)[0-9*?[].*|input/(event|mouse|mice).*)`

// mayBeDangerous reports whether a glob of the resource looks as if it selected nodes that
// need a permission. It is only for a warning: the host decides.
func (r *resource) mayBeDangerous() bool {
	for _, m := range r.Match {
		if slices.ContainsFunc(m.Glob, func(glob string) bool {
			return fullMatch(dangerous, strings.Replace(glob, "/**/", "/", 1))
		}) {
			return true
		}
	}
	return false
}

// shareOverlaps lets resources share devices that several of them may select, if either
// may be shared.
func (c *conversion) shareOverlaps() {
	selections := make([][]selection, len(c.resources))
	for i, a := range c.resources {
		selections[i] = a.selections()
		for k, b := range c.resources[:i] {
			mayShare := a.mayShare || b.mayShare
			isDisabled := a.disabled || b.disabled
			if mayShare && !isDisabled && overlap(selections[i], selections[k]) {
				a.share()
				b.share()
			}
		}
	}
}

// share lets other resources have the devices of the resource. The other plugin does so
// without being asked.
func (r *resource) share() {
	r.Shared = true
	r.comment("shared: another resource may select the same devices, and each counts its own slots")
	if r.addressIDs {
		r.differs(r.at, `differs: IDs of shared devices begin with "shared:", and are not the addresses that Multus and CNI plugins need: exclude the devices from one of the resources`)
	}
}

// selection is the set of nodes that a glob of a match selects.
type selection struct {
	// prefix is the text before the first wildcard.
	prefix string
	// fixed is set if there is no wildcard.
	fixed bool
	// target is the beginning of the paths of the nodes that links point to, empty if the
	// glob names nodes by the kernel's names.
	target string
	class  string
	// whole is set if all nodes of the hardware are selected.
	whole bool
	// id and serial are of the USB device, if any.
	id     string
	serial string
}

// selections lists what the globs of a resource select. Mounts are left out, since any number
// of containers may have them.
func (r *resource) selections() (all []selection) {
	for _, m := range r.Match {
		if m.As != "" {
			continue
		}
		for _, g := range m.Glob {
			all = append(all, r.selection(m, g))
		}
	}
	return all
}

// selection is what a glob of a match selects.
func (r *resource) selection(m match, glob string) selection {
	s := selection{
		id:     m.USB.ID,
		serial: strings.Join(m.USB.Serial, ""),
		class:  classOf(glob),
		target: linkTarget(glob),
	}
	s.whole = r.Each == "device" || r.Each == "all" && s.id != ""
	if a, err := parseGlob(glob); err == nil {
		_, s.fixed = a.Literal()
		s.prefix = a.Prefix()
	}
	return s
}

// Hardware has nodes of a single class: graphics nodes, or any other nodes, since a USB device may
// have nodes of any kind. Nodes of software have no hardware.
const (
	graphicsNodes = `/dev/(dri/|fb|accel|nvidia).*`
	softwareNodes = `/dev/(fuse|kvm|kfd|net/tun|vhost-|loop|uinput|uhid|dma_heap/|vfio/vfio).*`
)

// classOf is the class of the nodes that a glob selects.
func classOf(glob string) string {
	if fullMatch(graphicsNodes, glob) {
		return "graphics"
	}
	if fullMatch(softwareNodes, glob) {
		return ""
	}
	return "other"
}

// linkTargets are the nodes that the links in directories of udev point to.
var linkTargets = map[string]string{
	"/dev/serial/by-":  "/dev/tty",
	"/dev/v4l/by-":     "/dev/v",
	"/dev/input/by-":   "/dev/input/",
	"/dev/snd/by-":     "/dev/snd/",
	"/dev/dri/by-path": "/dev/dri/",
}

// linkTarget is the beginning of the paths of nodes that a glob of links selects, empty if
// the glob is not known to select links. Links of an administrator's own rules may point
// anywhere: the first resource gets the node then, which check reports.
func linkTarget(glob string) string {
	for dir, target := range linkTargets {
		if strings.HasPrefix(glob, dir) {
			return target
		}
	}
	return ""
}

// overlap reports whether two resources may select the same device: the same node, or
// nodes of hardware that one of them selects whole. It errs on the side of yes.
func overlap(a, b []selection) bool {
	for _, s := range a {
		if slices.ContainsFunc(b, s.overlaps) {
			return true
		}
	}
	return false
}

// overlaps reports whether two selections may have a device in common.
func (s selection) overlaps(t selection) bool {
	sameClass := s.class == t.class && s.class != ""
	sameHardware := sameClass && (s.whole || t.whole)
	sameTarget := sameClass && s.sameTarget(t)
	return s.sameUSB(t) && (s.samePath(t) || sameHardware || sameTarget)
}

// sameUSB reports whether two selections may be of the same USB device.
func (s selection) sameUSB(t selection) bool {
	if s.id == "" || t.id == "" {
		return true
	}
	sameSerial := s.serial == "" || t.serial == "" || s.serial == t.serial
	return s.id == t.id && sameSerial
}

// sameTarget reports whether the links of one selection may point to nodes of the other.
func (s selection) sameTarget(t selection) bool {
	if s.target == "" && t.target == "" {
		return false
	}
	for _, links := range []*selection{&s, &t} {
		if links.target != "" {
			links.prefix = links.target
			links.fixed = false
		}
	}
	return s.samePath(t)
}

// samePath reports whether two globs may match the same path.
func (s selection) samePath(t selection) bool {
	below := strings.HasPrefix(s.prefix, t.prefix) && !t.fixed
	above := strings.HasPrefix(t.prefix, s.prefix) && !s.fixed
	return s.prefix == t.prefix || below || above
}
