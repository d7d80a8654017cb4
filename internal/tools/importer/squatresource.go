package importer

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
)

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

// form is the form of the devices of a group.
func (g squatGroup) form() squatForm {
	wild := 0
	for _, p := range g.paths {
		if p.host == "" {
			wild++
		}
	}
	isDirectory := len(g.paths) == 1 && g.paths[0].isDirectory
	hasOnlyFixedPaths := len(g.paths) > 1 && wild == 0
	isSet := len(g.usb) > 1 && !loadsFirmware(g.usb)
	switch {
	case isSet, isDirectory, hasOnlyFixedPaths:
		return poolForm
	case len(g.paths) <= 1:
		return nodeForm
	case wild == 1:
		return withForm
	}
	return hardwareForm
}

// loadsFirmware reports whether selectors select a USB device before and after it loads its firmware,
// which happens when a container opens it.
func loadsFirmware(selectors []squatUSB) bool {
	var all []string
	for _, u := range selectors {
		all = append(all, u.id())
	}
	isSelected := func(id string) bool { return slices.Contains(all, id) }
	ids := catalog.Reenumerating(all)
	return ids != nil && isSelected(ids[0]) && isSelected(ids[1])
}

// squatResources makes the resources of a device: groups of one form share a resource if
// possible.
func (c *conversion) squatResources(device *value, domain, name string, groups []squatGroup) {
	var parts [][]squatGroup
	for _, g := range groups {
		i := slices.IndexFunc(parts, func(part []squatGroup) bool { return part[0].canJoin(g) })
		if i < 0 {
			i = len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], g)
	}
	for i, part := range parts {
		r := &resource{
			Name: name,
		}
		if i > 0 {
			r.Name = fmt.Sprintf("%s-%d", name, i+1)
			part[0].at.differs("becomes the resource %q, since it forms devices differently", r.Name)
		}
		r.addGroups(device, part)
		r.inheritFromContainer(device)
		c.add(device, domain, r)
	}
}

// canJoin reports whether two groups can share a resource: groups of single devices, and groups of
// several fixed nodes.
func (g squatGroup) canJoin(other squatGroup) bool {
	isMount := func(p squatPath) bool { return p.match.isMount() }
	hasMounts := slices.ContainsFunc(slices.Concat(g.paths, other.paths), isMount)
	isSet := len(g.paths) > 1 && len(g.paths) == len(other.paths)
	if g.form() != other.form() {
		return false
	}
	return g.form() == nodeForm || g.form() == poolForm && isSet && !hasMounts
}

// addGroups sets what the resource of a device selects.
func (r *resource) addGroups(device *value, groups []squatGroup) {
	form := groups[0].form()
	if form == poolForm && len(groups) > 1 {
		form = hardwareForm
	}
	var usb []squatUSB
	isSame := true
	for _, g := range groups {
		usb = append(usb, g.usb...)
		isSame = isSame && g.count == groups[0].count
	}
	r.setEach(device, form, usb)
	if isSame {
		r.Count = validCount(device, groups[0].count)
	}
	for i, g := range groups {
		count := 0
		if !isSame {
			count = validCount(g.at, g.count)
		}
		for _, u := range g.usb {
			r.addUSB(u, count)
		}
		r.addPaths(form, g, i, count)
	}
}

// setEach sets what one device is. usb are the selectors of USB devices.
func (r *resource) setEach(device *value, form squatForm, usb []squatUSB) {
	switch {
	case form == poolForm:
		r.Each = "all"
		return
	case form == hardwareForm:
		r.Each = "device"
		device.differs("nodes of the same hardware are a device; generic-device-plugin pairs them by position in sorted lists")
	case loadsFirmware(usb):
		// The ID of the device must not change when it loads its firmware.
		r.Each = "usb.path"
	case len(usb) > 0:
		// The bus node is the device, since another resource may have the others.
		r.Each = "node"
	}
	if slices.ContainsFunc(usb, func(u squatUSB) bool { return u.Serial == "" }) {
		device.differs(`each USB device is a device; generic-device-plugin makes one of all that are plugged in (each = "all" does it)`)
	}
}

// addUSB selects the bus nodes of USB devices.
func (r *resource) addUSB(u squatUSB, count int) {
	m := match{
		Glob:  []string{"/dev/bus/usb/**"},
		Count: count,
	}
	m.set("usb.id", u.id())
	if u.Serial != "" {
		m.set("usb.serial", pattern.Quote(u.Serial))
	}
	r.Match = append(r.Match, m)
}

// addPaths adds the paths of the i-th group.
func (r *resource) addPaths(form squatForm, g squatGroup, i, count int) {
	hasWildcards := slices.ContainsFunc(g.paths, func(p squatPath) bool { return p.host == "" })
	isSet := len(g.paths) > 1
	for k, p := range g.paths {
		isFixed := p.host != ""
		isOfWildcard := isFixed && isSet && hasWildcards
		m := p.match
		m.Count = count
		m.Required = isSet && form != withForm && !p.Optional
		switch {
		case isOfWildcard:
			// An optional path limits the number of devices as well while it is there (discoverPath
			// in deviceplugin/path.go of generic-device-plugin).
			g.at.differs("limit %d of %q: here every device gets it", p.Limit, p.Path)
			r.addCompanion(p)
		case form == hardwareForm && i > 0:
			r.joinPath(g.at, k, m)
		default:
			r.addPath(m)
		}
		if p.isDirectory && form == poolForm {
			r.excludeDangerousUSB(g.at, p.host)
		}
	}
}

// joinPath adds the path of another group to the match for the same position.
func (r *resource) joinPath(at *value, position int, next match) {
	m := &r.Match[position]
	hasOtherPath := m.ContainerPath != next.ContainerPath
	hasMountPath := next.ContainerPath != next.Glob[0]
	isOther := m.Permissions != next.Permissions || m.Required != next.Required || m.Count != next.Count
	if isOther || hasOtherPath && hasMountPath {
		at.differs("permissions and optional are those of the first group, the count is the lowest, and only paths that all groups have are kept")
	}
	m.Glob = append(m.Glob, next.Glob...)
	m.Count = min(m.Count, next.Count)
	if hasOtherPath {
		m.ContainerPath = ""
	}
}

// addPath adds a match, to the previous match if they differ only in the glob.
func (r *resource) addPath(m match) {
	if n := len(r.Match); n > 0 && r.Each == "" {
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
func (r *resource) addCompanion(p squatPath) {
	w := companion{
		Path:          escapeVariables(p.host),
		Permissions:   p.match.Permissions,
		ContainerPath: p.match.ContainerPath,
		Optional:      p.Optional,
	}
	if w.ContainerPath == w.Path {
		w.ContainerPath = ""
	}
	if p.isDirectory || p.match.isMount() {
		w.Path = p.match.Glob[0]
	}
	r.With = append(r.With, w)
}

// inheritFromContainer moves the permissions of the first match to the container, and leaves out the
// same permissions of other matches. A single match also inherits the path. The names of links
// remain only with a single glob, since several may have different numbers of wildcards.
func (r *resource) inheritFromContainer(device *value) {
	first := r.Match[0]
	if first.Permissions != "rw" && !first.isMount() {
		r.Container.Permissions = first.Permissions
	}
	hasSeveral := len(r.Match) > 1 || len(first.Glob) > 1
	for i := range r.Match {
		m := &r.Match[i]
		if m.Permissions == first.Permissions && !m.isMount() {
			m.Permissions = ""
		}
		isNamed := strings.Contains(strings.ReplaceAll(m.ContainerPath, "$${", ""), "${")
		if isNamed && hasSeveral {
			m.ContainerPath = ""
			device.differs("nodes of the symlinks %q have the kernel's names in the container", m.Glob)
		}
	}
	if len(r.Match) == 1 && !first.isMount() {
		r.Container.Path = r.Match[0].ContainerPath
		r.Match[0].ContainerPath = ""
	}
}
