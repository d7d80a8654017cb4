package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// note adds a note; hint may be empty.
func (m *run) note(place, hint, format string, args ...any) {
	m.result.Notes = append(m.result.Notes, Note{Problem: config.Problem{Place: place, Hint: hint, Text: fmt.Sprintf(format, args...)}})
}

// fault adds a note that is an error.
func (m *run) fault(place, hint, format string, args ...any) {
	m.note(place, hint, format, args...)
	m.result.Notes[len(m.result.Notes)-1].Error = true
}

// directoryNotes reports the globs of a resource that match directories only.
func (m *run) directoryNotes(r *config.Resource) {
	for i := range r.Match {
		if match := &r.Match[i]; !match.Mount {
			m.directoryNote(match.Place, match.Glob)
		}
	}
	for i := range r.Exclude {
		m.directoryNote(r.Exclude[i].Place, r.Exclude[i].Glob)
	}
	for i := range r.With {
		if c := &r.With[i]; !c.Mount {
			m.directoryNote(c.Place, c.Glob)
		}
	}
}

// directoryNote reports patterns that match directories and no node, except for those
// with "**", which match the directories on their path.
func (m *run) directoryNote(place string, glob pattern.Values) {
	for _, v := range glob.Split() {
		written := v.Patterns()[0]
		if v.Negative() || strings.Contains(written, "**") {
			continue
		}
		i := slices.IndexFunc(m.snap.Dirs, func(dir string) bool {
			return v.Match(dir)
		})
		if i >= 0 && len(m.glob(v)) == 0 {
			m.fault(
				place,
				fmt.Sprintf("did you mean %q?", written+"/*"),
				"glob: %q is a directory: want the nodes in it",
				m.snap.Dirs[i],
			)
		}
	}
}

// notes adds the notes about the devices and offers of a resource.
func (m *run) notes(r *config.Resource, devices []candidate, offers []device.Offer) {
	bad := slices.DeleteFunc(slices.Clone(offers), func(o device.Offer) bool { return o.Problem == "" })
	if len(bad) > 0 {
		hint := ""
		if len(bad) > 1 {
			hint = "generic-dp devices lists them all"
		}
		m.note(
			r.Place,
			hint,
			"%s can't be allocated: %s",
			andMore(fmt.Sprintf("device %q", bad[0].ID), len(bad)),
			bad[0].Problem,
		)
	}
	for i := range r.Match {
		match := &r.Match[i]
		if len(match.Virtual) > 0 && r.When == nil {
			m.note(match.Place, `when.node_name = "worker-*", or when.exists, says where`,
				"virtual without when: every node that runs this configuration offers it")
		}
		if !match.Mount {
			continue
		}
		if nodes := m.glob(match.Glob); len(nodes) > 0 {
			m.note(
				match.Place,
				`a match without as = "mount" gives device nodes`,
				"device nodes are not mounted: %s",
				andMore(nodes[0].Path, len(nodes)),
			)
		}
	}
	for _, list := range sameGroup(r, devices) {
		m.note(r.Place, "vfio = true makes one device of them", "%s and %s can't be used by two containers at once, since one of them has the whole group",
			list[0].describe(), andMore(list[1].describe(), len(list)-1))
	}
	m.annotationNote(r)
	if r.Container.CDI {
		if i := slices.IndexFunc(offers, func(o device.Offer) bool {
			return len(o.Nets) > 0 && o.Problem == ""
		}); i >= 0 {
			m.note(r.Place, "", "network interface %s moves into its container: the host is without it until the pod ends, and a container that restarts within the pod finds it as long as this program runs",
				offers[i].Nets[0].HostName)
		}
		return
	}
	if i := slices.IndexFunc(devices, movesNet); i >= 0 && len(r.Container.Env)+len(r.Container.Annotations) == 0 {
		m.note(r.Place, "container.cdi = true moves it into the container",
			"network interface %s without container.cdi: it stays on the host, and a container gets nothing of it", devices[i].picks[0].node.Path)
	}
	for _, text := range namedNodes(offers) {
		hint := "container.cdi = true"
		if r.Container.AutoCDI {
			hint = "container.cdi is \"auto\", for which --cdi-dir has to be a directory that can be written"
		}
		m.note(
			r.Place,
			hint,
			"%s without container.cdi: programs find these nodes by their names, and a container that restarts when the numbers in them have changed finds them at the names of before",
			text,
		)
	}
	follows := func(n device.OfferedNode) bool {
		return n.Follow && !n.Companion
	}
	if united := unites(r); united != "" && slices.ContainsFunc(offers, func(o device.Offer) bool {
		return slices.ContainsFunc(o.Nodes, follows)
	}) {
		m.note(
			r.Place,
			"container.cdi = true",
			"%s without container.cdi: a container keeps to the nodes that were there when its pod started, also when it restarts",
			united,
		)
	}
}

// movesNet reports whether a device is a network interface.
func movesNet(c candidate) bool {
	return len(c.picks) > 0 && c.picks[0].node.Net != nil && c.picks[0].match.Has("net")
}

// unites is the key by which a resource combines hardware that comes and goes into
// one device, "" for none.
func unites(r *config.Resource) string {
	if r.GroupBy != "" {
		return "group_by"
	} else if r.Each == config.EachAll {
		return `each = "all"`
	}
	return ""
}

// interfaceDirs are directories of nodes that programs find by their host names.
var interfaceDirs = []struct{ dir, nodes string }{
	{"/dev/bus/usb/", "USB bus nodes"},
	{"/dev/vfio/", "VFIO nodes"},
	{"/dev/dri/", "DRM nodes"},
	{"/dev/infiniband/", "RDMA nodes"},
	{"/dev/snd/", "sound nodes"},
}

// isInterface reports whether programs find a node by its name, which may change while
// a container has it.
func isInterface(n device.OfferedNode) bool { return interfaceOf(n) != "" }

// interfaceOf is the kind of such a node, "" for others.
func interfaceOf(n device.OfferedNode) string {
	if !n.Follow || n.Companion || n.Path.String() != n.HostPath {
		return ""
	}
	for _, kind := range interfaceDirs {
		if strings.HasPrefix(n.HostPath, kind.dir) {
			return kind.nodes
		}
	}
	return ""
}

// namedNodes lists the nodes in interfaceDirs that only a link follows, by kind.
func namedNodes(offers []device.Offer) []string {
	var out []string
	for _, kind := range interfaceDirs {
		var nodes []string
		for _, o := range offers {
			for _, n := range o.Nodes {
				if !o.AlsoCDI && interfaceOf(n) == kind.nodes {
					nodes = append(nodes, n.HostPath)
				}
			}
		}
		if len(nodes) > 0 {
			out = append(out, fmt.Sprintf("%s (%s)", kind.nodes, andMore(nodes[0], len(nodes))))
		}
	}
	return out
}

// sameGroup lists, by IOMMU group, the devices of a resource that share its VFIO
// nodes.
func sameGroup(r *config.Resource, devices []candidate) [][]*candidate {
	if r.Shared || unites(r) != "" {
		return nil
	}
	byGroup := map[string][]*candidate{}
	var order []string
	for i := range devices {
		c := &devices[i]
		g := c.iommuGroup()
		if g == "" || !slices.ContainsFunc(c.picks, func(p pick) bool {
			return isGroupNode(p.node) || isFunctionNode(p.node)
		}) {
			continue
		}
		if byGroup[g] = append(byGroup[g], c); len(byGroup[g]) == 2 {
			order = append(order, g)
		}
	}
	var out [][]*candidate
	for _, g := range order {
		out = append(out, byGroup[g])
	}
	return out
}

// annotationNote lists what DRA leaves out.
func (m *run) annotationNote(r *config.Resource) {
	if r.API == config.APIDRA && len(r.Container.Annotations) > 0 {
		names := make([]string, 0, len(r.Container.Annotations))
		for _, a := range r.Container.Annotations {
			names = append(names, a.Key.String())
		}
		slices.Sort(names)
		m.note(r.Place, "container.env gives the same to the container itself",
			"container.annotations with api = %q: a DRA driver can't annotate containers: left out are %s", r.API, strings.Join(names, ", "))
	}
}
