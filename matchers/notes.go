package matchers

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// note adds a note about a place of the configuration. hint says how to change the configuration,
// and may be empty.
func (m *run) note(place, hint, format string, args ...any) {
	m.result.Notes = append(m.result.Notes, Note{
		Problem: config.Problem{
			Place: place,
			Hint:  hint,
			Text:  fmt.Sprintf(format, args...),
		},
	})
}

// fault adds a note about a mistake. The commands check and devices report it as a problem.
func (m *run) fault(place, hint, format string, args ...any) {
	m.note(place, hint, format, args...)
	m.result.Notes[len(m.result.Notes)-1].Error = true
}

// hexadecimalNote reports a condition on an attribute that lacks the "0x" of the file: it is compared as text.
func (m *run) hexadecimalNote(place, key string, want pattern.Values, values []string) {
	positive := want.Positive()
	for _, have := range values {
		digits, isHexadecimal := strings.CutPrefix(have, "0x")
		if !isHexadecimal || positive.Match(have) || !positive.Match(digits) {
			continue
		}
		text := fmt.Sprintf("%s is compared with the text of the file, which has %q", key, have)
		isNoted := slices.ContainsFunc(m.result.Notes, func(n Note) bool {
			return n.Place == place && n.Text == text
		})
		if !isNoted {
			m.note(place, "write the value with 0x", "%s", text)
		}
		return
	}
}

// excludeNotes reports each exclude that can never leave anything out, because no match selects what it
// describes.
func (m *run) excludeNotes(r *config.Resource) {
	for i := range r.Exclude {
		exclude := &r.Exclude[i]
		mayExclude := slices.ContainsFunc(r.Match, func(match config.Match) bool {
			return maySelectSame(&match, exclude)
		})
		if !mayExclude {
			m.note(exclude.Place, "", "it never leaves anything out, because no match selects what it describes")
		}
	}
}

// maySelectSame reports whether there may be something that a match and an exclude both select.
func maySelectSame(match, exclude *config.Match) bool {
	if match.Virtual != nil {
		return false // neither hardware nor nodes
	}
	if match.Mount || exclude.Mount {
		isOnlyPath := !exclude.Glob.Empty() && len(exclude.Hardware) == 0
		return match.Mount && isOnlyPath
	}
	isOtherBus := match.Has("usb") && exclude.Has("mdev") || match.Has("mdev") && exclude.Has("usb")
	if isOtherBus {
		return false
	}
	for _, a := range device.Attributes() {
		first := match.Hardware[a.Table][a.Key]
		second := exclude.Hardware[a.Table][a.Key]
		// A device may have several interfaces, and a physical function several names.
		hasOneValue := a.About == device.OfHardware && a.Name() != "pci.pf"
		if hasOneValue && (areApart(first, second) || areApart(second, first)) {
			return false
		}
	}
	return true
}

// areApart reports whether the values that satisfy one condition are spelled out, and satisfy the other one in
// no case.
func areApart(spelled, other pattern.Values) bool {
	if spelled.Empty() || other.Empty() || spelled.Negative() {
		return false
	}
	return !slices.ContainsFunc(spelled.Alternatives(), func(a pattern.Alternative) bool {
		text, isLiteral := a.Literal()
		return !isLiteral || other.Match(text)
	})
}

// directoryNotes reports the globs of a resource that match only directories. A mount may be a
// directory, so that its glob is not reported.
func (m *run) directoryNotes(r *config.Resource) {
	for _, match := range slices.Concat(r.Match, r.Exclude) {
		if !match.Mount {
			m.directoryNote(match.Place, "glob", match.Glob)
		}
	}
	for _, companion := range r.With {
		if !companion.Mount {
			m.directoryNote(companion.Place, "path", companion.Glob)
		}
	}
}

// directoryNote reports patterns that match directories and no node, except for patterns with
// "**", which match the directories on their path.
func (m *run) directoryNote(place, key string, glob pattern.Values) {
	for _, v := range glob.Split() {
		written := v.Patterns()[0]
		// A pattern with "!" may well exclude nothing.
		if v.Negative() || strings.Contains(written, "**") {
			continue
		}
		i := slices.IndexFunc(m.snap.Dirs, func(dir string) bool {
			return !m.isLate(v) && v.Match(dir)
		})
		if i >= 0 && len(m.glob(v)) == 0 {
			m.fault(
				place,
				fmt.Sprintf("did you mean %q?", written+"/*"),
				"%s: %q is a directory: only the nodes in it can be selected",
				key,
				m.snap.Dirs[i],
			)
		}
	}
}

// offersOf yields the offers of the names of a resource.
func offersOf(names []Offered) iter.Seq[*device.Offer] {
	return func(yield func(*device.Offer) bool) {
		for _, out := range names {
			for i := range out.Offers {
				if !yield(&out.Offers[i]) {
					return
				}
			}
		}
	}
}

// nodesOf yields the nodes of the devices themselves, with their offers.
func nodesOf(names []Offered) iter.Seq2[*device.Offer, device.OfferedNode] {
	return func(yield func(*device.Offer, device.OfferedNode) bool) {
		for o := range offersOf(names) {
			for _, n := range o.Nodes {
				if !n.Companion && !yield(o, n) {
					return
				}
			}
		}
	}
}

// notes adds the notes about the devices and offers of a resource. offered are the names of the
// resource, of which there may be none.
func (m *run) notes(r *config.Resource, devices []candidate, offered []Offered) {
	m.problemNote(r, offered)
	m.sameGroupNotes(r, devices)
	m.annotationNote(r)
	m.versionNote(r)
	m.renamedNodeNote(r, offered)
	// The notes after this one are about what only CDI can do.
	if r.Container.CDI {
		m.returnedNetNote(r)
		return
	}
	m.unmovedNetNote(r, devices)
	m.namedNodesNotes(r, offered)
	m.membersNote(r, offered)
}

// problemNote reports offers that have a problem. The first problem stands for all, since they
// often have one cause.
func (m *run) problemNote(r *config.Resource, offered []Offered) {
	var first *device.Offer
	count := 0
	for o := range offersOf(offered) {
		if o.Problem != "" {
			first = cmp.Or(first, o)
			count++
		}
	}
	if first == nil {
		return
	}
	hint := ""
	if count > 1 {
		hint = "generic-dp devices lists them all"
	}
	m.note(
		r.Place,
		hint,
		"%s can't be allocated: %s",
		andMore(fmt.Sprintf("device %q", first.ID), count),
		first.Problem,
	)
}

// annotationNote lists the annotations that DRA leaves out.
func (m *run) annotationNote(r *config.Resource) {
	if r.API != config.APIDRA || len(r.Container.Annotations) == 0 {
		return
	}
	names := make([]string, 0, len(r.Container.Annotations))
	for _, a := range r.Container.Annotations {
		names = append(names, a.Key.String())
	}
	slices.Sort(names)
	m.note(
		r.Place,
		"container.env sets the same values in the container",
		"container.annotations with api = %q: a DRA driver can't annotate containers: left out are %s",
		r.API,
		strings.Join(names, ", "),
	)
}

// versionNote names the version of Kubernetes that the resource needs, since older API servers drop
// fields that they do not know, without an error.
func (m *run) versionNote(r *config.Resource) {
	what, version, otherwise := r.NeedsVersion()
	if what != "" {
		m.note(r.Place, otherwise, "%s needs Kubernetes %s", what, version)
	}
}

// returnedNetNote reports a match by the name of an interface that has another name in the container. When
// the pod ends, the kernel returns the interface with that name, or as devN if the host has it already
// (default_device_exit_net in net/core/dev.c). The name of the match then finds nothing.
func (m *run) returnedNetNote(r *config.Resource) {
	if len(r.Container.NetName) == 0 {
		return
	}
	for i := range r.Match {
		match := &r.Match[i]
		name := match.Hardware["net"]["name"]
		literal, _ := name.Literal()
		isSame := literal != "" && literal == r.Container.NetName.String()
		if name.Empty() || isSame {
			continue
		}
		m.note(
			match.Place,
			"driver, usb, pci or attr.dev_port selects the interface whatever its name is",
			"net.name with container.net_name: when the pod ends, the interface returns under its name in the container, or as devN, and net.name may not find it any more",
		)
		return
	}
}

// renamedNodeNote reports a node that programs find by the kernel's name, at another path in the
// container.
func (m *run) renamedNodeNote(r *config.Resource, offered []Offered) {
	for _, n := range nodesOf(offered) {
		at := n.Path.String()
		kind := interfaceDirOf(n.HostPath)
		if kind == "" || at == n.HostPath {
			continue
		}
		m.note(
			r.Place,
			"without container.path, a node has its own path; container.env can tell the program which one it is",
			"%s is at %s in the container: libraries look up %s by their number, and open the kernel's name, which is not there",
			n.HostPath,
			at,
			kind,
		)
		return
	}
}

// unmovedNetNote reports a network interface of which a container gets nothing.
func (m *run) unmovedNetNote(r *config.Resource, devices []candidate) {
	// The container gets values of the interface, which may be all that it needs.
	if len(r.Container.Env)+len(r.Container.Annotations) > 0 {
		return
	}
	// The interface of hardware that was selected for other reasons is not a mistake.
	i := slices.IndexFunc(devices, func(c candidate) bool {
		return len(c.picks) > 0 && c.picks[0].isNet() && c.picks[0].match.net
	})
	if i < 0 {
		return
	}
	m.note(
		r.Place,
		"container.cdi = true moves it into the container",
		"network interface %s without container.cdi: it stays on the host, and no container gets it",
		devices[i].picks[0].node.Path,
	)
}

// namedNodesNotes reports nodes that programs find by their names, which may change while a
// container has them.
func (m *run) namedNodesNotes(r *config.Resource, offered []Offered) {
	hint := "container.cdi = true"
	if r.Container.AutoCDI {
		hint = "container.cdi is \"auto\", which requires a writable directory as --cdi-dir"
	}
	for _, kind := range interfaceDirs {
		var nodes []string
		for o, n := range nodesOf(offered) {
			// With AlsoCDI, the runtime injects the node under its current name.
			if !o.AlsoCDI && interfaceOf(n) == kind.nodes {
				nodes = append(nodes, n.HostPath)
			}
		}
		if len(nodes) == 0 {
			continue
		}
		m.note(
			r.Place,
			hint,
			"%s (%s) without container.cdi: programs find these nodes by their names, and a container that restarts after their numbers have changed finds them under the old names",
			kind.nodes,
			andMore(nodes[0], len(nodes)),
		)
	}
}

// membersNote reports that a container does not follow the changes of a pool or a group.
func (m *run) membersNote(r *config.Resource, offered []Offered) {
	combinedBy := combiningKey(r)
	if combinedBy == "" {
		return
	}
	for _, n := range nodesOf(offered) {
		// Only a link can follow a node.
		if !n.Follow {
			continue
		}
		m.note(
			r.Place,
			"container.cdi = true",
			"%s without container.cdi: a container keeps the nodes that existed when its pod started, even after a restart",
			combinedBy,
		)
		return
	}
}

// combiningKey returns the key by which a resource combines hardware into one device, whose
// members appear and disappear, or "".
func combiningKey(r *config.Resource) string {
	if r.GroupBy != "" {
		return fmt.Sprintf("each = %q", r.GroupBy)
	}
	if r.Each == config.EachAll {
		return `each = "all"`
	}
	return ""
}

// interfaceDirs are directories of nodes that programs find by their host names.
var interfaceDirs = []struct {
	dir   string
	nodes string
}{
	{"/dev/bus/usb/", "USB bus nodes"},
	{"/dev/vfio/", "VFIO nodes"},
	{"/dev/dri/", "DRM nodes"},
	{"/dev/infiniband/", "RDMA nodes"},
	{"/dev/snd/", "sound nodes"},
}

// isInterface reports whether programs find a node by its name, which may change while a
// container has it.
func isInterface(n device.OfferedNode) bool { return interfaceOf(n) != "" }

// interfaceOf returns the kind of a node that programs find by its name, or "".
func interfaceOf(n device.OfferedNode) string {
	// A node whose path in the container is configured keeps that path.
	if !n.Follow || n.Companion || n.Path.String() != n.HostPath {
		return ""
	}
	return interfaceDirOf(n.HostPath)
}

// interfaceDirOf returns the kind of the nodes in the directory of a host path, or "".
func interfaceDirOf(host string) string {
	for _, kind := range interfaceDirs {
		if strings.HasPrefix(host, kind.dir) {
			return kind.nodes
		}
	}
	return ""
}

// sameGroupNotes reports, by IOMMU group, the devices of a resource that share the VFIO nodes of the
// group.
func (m *run) sameGroupNotes(r *config.Resource, devices []candidate) {
	// Shared devices may be used at once, and exclusive ones exclude each other. A pool or a group
	// contains the whole IOMMU group.
	mayShareGroup := r.Shared || r.Exclusive
	if mayShareGroup || combiningKey(r) != "" {
		return
	}
	byGroup := make(map[string][]*candidate)
	var groups []string // with several devices
	for i := range devices {
		c := &devices[i]
		number := c.iommuGroup()
		if number == "" || !slices.ContainsFunc(c.picks, pick.isVFIO) {
			continue
		}
		byGroup[number] = append(byGroup[number], c)
		// The second device is what makes the group a problem. Problems have the order of the devices.
		if len(byGroup[number]) == 2 {
			groups = append(groups, number)
		}
	}
	for _, number := range groups {
		list := byGroup[number]
		m.note(
			r.Place,
			"vfio = true makes one device of them",
			"%s and %s can't be used by two containers at once, because the first one has the whole group",
			list[0].describe(),
			andMore(list[1].describe(), len(list)-1),
		)
	}
}

// isVFIO reports whether the pick is the node of an IOMMU group or of a function in it.
func (p pick) isVFIO() bool { return isVFIONode(p.node) }
