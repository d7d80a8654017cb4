package importer

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// squatGroup is a group of a resource, which generic-device-plugin calls a device: the n-th
// nodes of its paths are the n-th device, or everything that usb matches is one device.
type squatGroup struct {
	at    *value
	count int
	// matchCount is the count of the group's matches if groups of the resource have different
	// counts.
	matchCount int

	paths []squatPath
	usb   []squatUSB
}

// A group has one of four forms, of which each becomes a resource of its own kind. Which form
// applies follows from how many of the paths have wildcards:
//
//	one path                          each = "node"     /dev/ttyUSB*
//	several, no wildcards             each = "all"      /dev/snd/controlC0 and /dev/snd/pcmC0D0c
//	several, one with wildcards       companions        /dev/ttyUSB* and /dev/kvm
//	several, more with wildcards      each = "device"   /dev/dri/card* and /dev/dri/renderD*
//
// In the last form, the plugin pairs the n-th matches of sorted lists. Ours pairs the nodes of
// the same hardware, which is what the author meant: the lists differ in order as soon as
// there are ten of a kind, since "card10" is before "card2".

// squatForm is what a device of a group consists of.
type squatForm string

const (
	nodeForm     squatForm = "node"     // each node or path
	poolForm     squatForm = "all"      // all nodes
	withForm     squatForm = "with"     // each node, with companions
	hardwareForm squatForm = "hardware" // the nodes of one hardware, with companions
)

// form is the form of the devices of a group. It follows from the number of paths and their
// wildcards: without wildcards, several paths are always one device.
func (g squatGroup) form() squatForm {
	wild := 0
	for _, p := range g.paths {
		if p.host == "" {
			wild++
		}
	}
	isDirectory := len(g.paths) == 1 && g.paths[0].directory
	hasOnlyFixedPaths := len(g.paths) > 1 && wild == 0
	switch {
	case len(g.usb) > 1, isDirectory, hasOnlyFixedPaths:
		return poolForm
	case len(g.paths) <= 1:
		return nodeForm
	case wild == 1:
		return withForm
	}
	return hardwareForm
}

// sameShape reports whether two groups of several paths differ only in the paths.
func (g squatGroup) sameShape(other squatGroup) bool {
	return len(g.paths) > 1 && slices.EqualFunc(g.paths, other.paths, sameShape)
}

// sameShape reports whether two paths differ only in what they select.
func sameShape(p, q squatPath) bool {
	if p.match.As != "" || q.match.As != "" {
		return false
	}
	sameContainerPath := p.match.ContainerPath == q.match.ContainerPath || p.MountPath == "" && q.MountPath == ""
	samePermissions := p.match.Permissions == q.match.Permissions
	return sameContainerPath && samePermissions && p.Optional == q.Optional
}

// squatResources makes the resources of a device: groups of one form share a resource if
// possible.
func (c *conversion) squatResources(device *value, name string, groups []squatGroup, in *workload) {
	var parts [][]squatGroup
	for _, g := range groups {
		lister := squatLister{name, g}
		c.before = append(c.before, lister.devices)
		i := slices.IndexFunc(parts, func(part []squatGroup) bool {
			return part[0].canJoin(g)
		})
		if i < 0 {
			i = len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], g)
	}
	for i, part := range parts {
		r := &resource{
			Name:     name,
			mayShare: true,
		}
		if i > 0 {
			r.Name = fmt.Sprintf("%s-%d", name, i+1)
			r.differs(device, "differs: %s becomes the resource %q, since it forms devices differently", part[0].at.key, path.Base(r.Name))
		}
		r.addGroups(device, part)
		r.dropCaptured(device)
		r.hoist()
		c.add(device, r, in)
	}
}

// canJoin reports whether two groups can share a resource.
func (g squatGroup) canJoin(other squatGroup) bool {
	form := g.form()
	if form != other.form() {
		return false
	}
	return form == nodeForm || form == poolForm && g.sameShape(other)
}

// addGroups sets what the resource of a device selects.
func (r *resource) addGroups(device *value, groups []squatGroup) {
	form := groups[0].form()
	if form == poolForm && len(groups) > 1 {
		form = hardwareForm
	}
	hasUSB := slices.ContainsFunc(groups, func(g squatGroup) bool {
		return len(g.usb) > 0
	})
	switch {
	case form == poolForm:
		r.Each = "all"
	case form == hardwareForm:
		r.Each = "device"
		r.differs(device, "differs: nodes of the same hardware are a device; generic-device-plugin pairs them by position in sorted lists")
	case hasUSB:
		// The bus node is the device, since another resource may have the others.
		r.Each = "node"
	}
	least := groups[0].count
	most := least
	for _, g := range groups {
		least = min(least, g.count)
		most = max(most, g.count)
	}
	countByMatch := form == nodeForm && least != most
	if !countByMatch {
		r.setCount(device, least)
	}
	for i, g := range groups {
		if g.count > least && !countByMatch {
			r.differs(device, "differs: count %d of %s is imported as %d: groups of several paths have one count: under another name it keeps its own", g.count, g.at.key, least)
		}
		if countByMatch {
			g.matchCount = r.validCount(device, g.count)
		}
		r.addGroupUSB(device, form, g)
		r.addGroupPaths(device, form, g, i)
	}
}

// addGroupUSB selects the USB devices of a group.
func (r *resource) addGroupUSB(device *value, form squatForm, g squatGroup) {
	for _, u := range g.usb {
		r.addUSB(u).Count = g.matchCount
		if form == nodeForm && u.Serial == "" {
			r.differs(device, `differs: each %s:%s is a device; generic-device-plugin makes one of all that are plugged in (each = "all" does it)`, u.Vendor, u.Product)
		}
	}
}

// addGroupPaths adds the paths of the i-th group.
func (r *resource) addGroupPaths(device *value, form squatForm, g squatGroup, i int) {
	for k, p := range g.paths {
		isFixed := p.host != ""
		besideWildcards := form == withForm || form == hardwareForm && g.hasWildcards()
		if isFixed && besideWildcards {
			r.addCompanion(device, p)
			continue
		}
		if form == hardwareForm && i > 0 {
			r.joinPath(k, p)
			continue
		}
		isMember := form == hardwareForm || form == poolForm && len(g.paths) > 1
		p.match.Count = g.matchCount
		r.addPath(p, isMember && !p.Optional)
		r.leaveOutDangerousUSB(device, p)
	}
}

// hasWildcards reports whether any path of the group has wildcards.
func (g squatGroup) hasWildcards() bool {
	return slices.ContainsFunc(g.paths, func(p squatPath) bool { return p.host == "" })
}

// joinPath adds the path of another group to the match for the same position.
func (r *resource) joinPath(position int, p squatPath) {
	m := &r.Match[position]
	m.Glob = append(m.Glob, p.match.Glob...)
	if m.ContainerPath != p.match.ContainerPath {
		m.ContainerPath = ""
	}
}

// leaveOutDangerousUSB excludes bus nodes that need dangerous = true from a pool: a single one of them
// would make the whole pool Unhealthy.
func (r *resource) leaveOutDangerousUSB(device *value, p squatPath) {
	hasBusNodes := p.directory && (isBelow("/dev/bus/usb", p.host) || isBelow(p.host, "/dev/bus/usb"))
	if !hasBusNodes || r.Each != "all" {
		return
	}
	r.excludeDangerousUSB(device)
}

// dangerousUSB are the classes of USB interfaces whose bus nodes may need dangerous = true: input
// devices, mass storage and hubs (include/uapi/linux/usb/ch9.h).
var dangerousUSB = []string{"03", "08", "09"}

// rootHubs matches the bus nodes of root hubs, which are the first device of each bus. No condition on
// USB devices selects a root hub.
const rootHubs = "/dev/bus/usb/*/001"

// excludeDangerousUSB excludes the bus nodes of disks, hubs and input devices.
func (r *resource) excludeDangerousUSB(at *value) {
	if len(r.Exclude) > 0 {
		return
	}
	var ofClass match
	ofClass.USB.InterfaceClass = dangerousUSB
	r.Exclude = []match{
		ofClass,
		{Glob: []string{rootHubs}},
	}
	r.differs(at, "differs: USB disks, hubs and input devices are left out: they need dangerous = true, and --allow=dangerous")
}

// addUSB selects the bus nodes of USB devices. It returns the match.
func (r *resource) addUSB(u squatUSB) *match {
	m := match{
		Glob:        []string{"/dev/bus/usb/**"},
		Permissions: "rw",
	}
	m.USB.ID = u.Vendor + ":" + u.Product
	if u.Serial != "" {
		m.USB.Serial = []string{pattern.Quote(u.Serial)}
	}
	r.Match = append(r.Match, m)
	return &r.Match[len(r.Match)-1]
}

// addPath selects the nodes of a path, in the previous match if they differ only in the
// glob.
func (r *resource) addPath(p squatPath, required bool) {
	m := p.match
	m.Required = required
	isNode := r.Each == "" || r.Each == "node"
	if n := len(r.Match); n > 0 && isNode {
		last := r.Match[n-1]
		glob := last.Glob
		last.Glob = m.Glob
		if reflect.DeepEqual(last, m) {
			r.Match[n-1].Glob = append(glob, m.Glob...)
			return
		}
	}
	r.Match = append(r.Match, m)
}

// addCompanion adds a path that accompanies every device.
func (r *resource) addCompanion(device *value, p squatPath) {
	m := p.match
	w := companion{
		As:            m.As,
		ReadOnly:      m.ReadOnly,
		Permissions:   m.Permissions,
		ContainerPath: m.ContainerPath,
		Optional:      p.Optional,
	}
	host := escapeVariables(p.host)
	switch {
	case m.As != "":
		w.HostPath = host
	case p.directory:
		w.Glob = m.Glob[0]
	default:
		w.Path = host
	}
	if w.ContainerPath == host {
		w.ContainerPath = ""
	}
	if w.Permissions == defaultPermissions {
		w.Permissions = ""
	}
	r.With = append(r.With, w)
	// An optional path limits the number of devices as well while it is there (discoverPath
	// in deviceplugin/path.go of generic-device-plugin).
	r.differs(device, "differs: limit %d of %q: here every device gets it", p.Limit, p.Path)
}

// defaultPermissions are the permissions of nodes.
const defaultPermissions = "rw"

// dropCaptured removes the names of links unless all globs of the resource have the same
// number of wildcards, as the language requires.
func (r *resource) dropCaptured(device *value) {
	wildcards := make(map[int]bool)
	for _, m := range r.Match {
		for _, g := range m.Glob {
			if a, err := parseGlob(g); err == nil {
				wildcards[a.Wildcards()] = true
			}
		}
	}
	if len(wildcards) == 1 {
		return
	}
	for i, m := range r.Match {
		if !hasVariables(m.ContainerPath) {
			continue
		}
		dir, _, _ := strings.Cut(m.ContainerPath, "${")
		r.Match[i].ContainerPath = ""
		if dir = dir[:strings.LastIndex(dir, "/")+1]; dir != path.Dir(m.Glob[0])+"/" {
			r.Match[i].ContainerPath = dir
		}
		r.differs(device, "differs: nodes of the symlinks %q have the kernel's names in the container", m.Glob[0])
	}
}

// hasVariables reports whether a text has variables, and not only escaped ones.
func hasVariables(text string) bool {
	return strings.Contains(strings.ReplaceAll(text, "$${", ""), "${")
}

// hoist moves to container the permissions that all matches share, and the path of a single
// match.
func (r *resource) hoist() {
	first := r.Match[0]
	if len(r.Match) == 1 && first.As == "" {
		r.Container.Path = first.ContainerPath
		r.Match[0].ContainerPath = ""
	}
	same := !slices.ContainsFunc(r.Match, func(m match) bool { return m.Permissions != first.Permissions })
	if same && first.Permissions != defaultPermissions {
		r.Container.Permissions = first.Permissions
	}
	for i := range r.Match {
		m := &r.Match[i]
		if same || m.Permissions == defaultPermissions {
			m.Permissions = ""
		}
	}
}
