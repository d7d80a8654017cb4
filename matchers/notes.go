package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// noteAt returns a note about a place of the configuration. hint says how to change the configuration,
// and may be empty.
func noteAt(place, hint, text string) Note {
	return Note{
		Problem: config.Problem{
			Place: place,
			Hint:  hint,
			Text:  text,
		},
	}
}

// note adds a note.
func (m *run) note(place, hint, format string, args ...any) {
	note := noteAt(place, hint, fmt.Sprintf(format, args...))
	m.result.Notes = append(m.result.Notes, note)
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

// notes adds the notes about the devices and offers of a resource. offered are the names of the
// resource, of which there may be none.
func (m *run) notes(r *config.Resource, devices []candidate, offered []Offered) {
	var offers []*device.Offer
	for _, out := range offered {
		for i := range out.Offers {
			offers = append(offers, &out.Offers[i])
		}
	}
	m.problemNote(r, offers)
	m.sameGroupNotes(r, devices)
	m.nicerNamesNote(r)
	m.annotationNote(r)
	m.versionNote(r)
	m.renamedNodeNote(r, offers)
	// The notes after this one are about what only CDI can do.
	if r.Container.CDI {
		m.returnedNetNote(r)
		return
	}
	m.unmovedNetNote(r, devices)
	m.namedNodesNotes(r, offers)
	m.membersNote(r, offers)
}

// problemNote reports offers that have a problem. The first problem stands for all, since they
// often have one cause.
func (m *run) problemNote(r *config.Resource, offers []*device.Offer) {
	failed := slices.DeleteFunc(slices.Clone(offers), func(o *device.Offer) bool {
		return o.Problem == ""
	})
	if len(failed) == 0 {
		return
	}
	hint := ""
	if len(failed) > 1 {
		hint = "generic-dp devices lists them all"
	}
	first := fmt.Sprintf("device %q", failed[0].ID)
	m.note(r.Place, hint, "%s can't be allocated: %s", andMore(first, len(failed)), failed[0].Problem)
}

// nicerNamesNote reports each nicer name that a resource cannot have as it is written.
func (m *run) nicerNamesNote(r *config.Resource) {
	for _, n := range r.Names {
		if n.Name != n.Written {
			m.note(r.Place, "", "names: %q becomes %q: a name has at most %d letters, digits, \"-\", \"_\" and \".\"", n.Written, n.Name, device.MaxName)
		}
	}
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

// ownNodes lists the nodes of the devices themselves.
func ownNodes(offers []*device.Offer) []device.OfferedNode {
	var nodes []device.OfferedNode
	for _, o := range offers {
		for _, n := range o.Nodes {
			if !n.Companion {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}

// renamedNodeNote reports a node that programs find by the kernel's name, at another path in the
// container.
func (m *run) renamedNodeNote(r *config.Resource, offers []*device.Offer) {
	for _, n := range ownNodes(offers) {
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
func (m *run) namedNodesNotes(r *config.Resource, offers []*device.Offer) {
	// With AlsoCDI, the runtime injects the node under its current name.
	offers = slices.DeleteFunc(slices.Clone(offers), func(o *device.Offer) bool {
		return o.AlsoCDI
	})
	hint := "container.cdi = true"
	if r.Container.AutoCDI {
		hint = "container.cdi is \"auto\", which requires a writable directory as --cdi-dir"
	}
	for _, kind := range interfaceDirs {
		var nodes []string
		for _, n := range ownNodes(offers) {
			if interfaceOf(n) == kind.nodes {
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
func (m *run) membersNote(r *config.Resource, offers []*device.Offer) {
	combinedBy := r.GroupBy
	if r.Each == config.EachAll {
		combinedBy = "all"
	}
	// Only a link can follow a node.
	follows := slices.ContainsFunc(ownNodes(offers), func(n device.OfferedNode) bool {
		return n.Follow
	})
	if combinedBy != "" && follows {
		m.note(
			r.Place,
			"container.cdi = true",
			"each = %q without container.cdi: a container keeps the nodes that existed when its pod started, even after a restart",
			combinedBy,
		)
	}
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

// returnedNetNote reports a match by the name of an interface that has another name in the container. When
// the pod ends, the kernel returns the interface with that name, or as devN if the host has it already
// (default_device_exit_net in net/core/dev.c). The name of the match then finds nothing.
func (m *run) returnedNetNote(r *config.Resource) {
	renamed := func(match config.Match) bool {
		name := match.Hardware["net"]["name"]
		literal, _ := name.Literal()
		isSame := literal != "" && literal == r.Container.NetName.String()
		return !name.Empty() && !isSame
	}
	i := slices.IndexFunc(r.Match, renamed)
	if i < 0 || len(r.Container.NetName) == 0 {
		return
	}
	m.note(
		r.Match[i].Place,
		"driver, usb, pci or attr.dev_port selects the interface whatever its name is",
		"net.name with container.net_name: when the pod ends, the interface returns under its name in the container, or as devN, and net.name may not find it any more",
	)
}

// sameGroupNotes reports the devices of a resource that share the VFIO nodes of an IOMMU group. Shared devices
// may be used at once, and exclusive ones exclude each other.
func (m *run) sameGroupNotes(r *config.Resource, devices []candidate) {
	isOneDevice := r.GroupBy != "" || r.Each == config.EachAll
	if r.Shared || r.Exclusive || isOneDevice {
		return
	}
	byGroup := make(map[string][]string)
	for i := range devices {
		c := &devices[i]
		hasNode := slices.ContainsFunc(c.picks, func(p pick) bool {
			return p.node != nil && isVFIONode(p.node)
		})
		if number := c.iommuGroup(); number != "" && hasNode {
			byGroup[number] = append(byGroup[number], c.describe())
		}
	}
	for _, number := range slices.Sorted(maps.Keys(byGroup)) {
		names := byGroup[number]
		if len(names) < 2 {
			continue
		}
		m.note(
			r.Place,
			"vfio = true makes one device of them",
			"%s and %s can't be used by two containers at once, because the first one has the whole group",
			names[0],
			andMore(names[1], len(names)-1),
		)
	}
}
