package matchers

import (
	"path"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// pathPick is a path of the host that is mounted, and the match that selected
// it.
type pathPick struct {
	path  string
	match *config.Match
}

// addPaths selects paths that are given as bind mounts. Device nodes are none:
// a container may not open what is mounted into it unless it is handed over as
// a device.
func (s *selection) addPaths(m *config.Match) {
	for _, p := range s.ix.paths(m.Glob) {
		known := slices.ContainsFunc(s.others, func(o selected) bool { return len(o.paths) > 0 && o.paths[0].path == p })
		if known || s.ix.at(p) != nil || slices.ContainsFunc(s.excludes, func(e *predicate) bool { return e.selectsPath(p) }) {
			continue
		}
		s.others = append(s.others, selected{single: true, paths: []pathPick{{p, m}}})
	}
}

// selectsPath reports whether a match that is nothing but a glob selects a path.
func (p *predicate) selectsPath(host string) bool {
	m := p.match
	return !m.Glob.Empty() && !m.NamesHardware() && m.Subsystem.Empty() && p.asksNothing() && m.Glob.Match(host)
}

// paths lists what there is on the host that a glob of paths selects, sorted.
// Where the host can't be asked it is what the snapshot knows.
func (ix *index) paths(v pattern.Values) []string {
	var found []string
	if ix.opts.Glob != nil {
		found = ix.opts.Glob(v)
	} else {
		for _, n := range ix.snap.Nodes {
			found = append(found, n.Path)
		}
		for _, l := range ix.snap.Links {
			found = append(found, l.Path)
		}
		found = append(found, ix.snap.Dirs...)
	}
	found = slices.DeleteFunc(found, func(p string) bool { return !v.Match(p) || !shows(v, p) })
	slices.Sort(found)
	return slices.Compact(found)
}

// shows reports whether a pattern of v selects a path by more than a wildcard
// in place of the dot that its last element begins with: as in a shell, such
// names are hidden, since what writes files makes them under such a name first.
func shows(v pattern.Values, p string) bool {
	if path.Base(p)[0] != '.' {
		return true
	}
	return slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
		return a.Match(p) && path.Base(a.Shape())[0] == '.'
	})
}

// addCDI selects CDI devices of the host by their qualified names. The device
// that many specs call "all" is every device, and no wildcard means that.
func (s *selection) addCDI(m *config.Match) {
	for i := range s.ix.opts.CDIDevices {
		d := &s.ix.opts.CDIDevices[i]
		known := slices.ContainsFunc(s.others, func(o selected) bool { return o.cdi == d })
		if known || !m.CDIDevice.Match(d.Name) || cdiValue(d.Name, "device") == "all" && !names(m.CDIDevice, d.Name) {
			continue
		}
		s.others = append(s.others, selected{single: true, cdi: d, united: s.ix.ofCDI(d), dangerous: m.Dangerous})
	}
}

// names reports whether a condition selects a text by a pattern without
// wildcards.
func names(v pattern.Values, text string) bool {
	return slices.ContainsFunc(v.Alternatives(), func(a pattern.Alternative) bool {
		found, whole := a.Literal()
		return whole && found == text
	})
}

// ofCDI lists the hardware of a CDI device's own nodes, in the order of the
// snapshot.
func (ix *index) ofCDI(d *device.CDIDevice) []*device.Hardware {
	var found []*device.Hardware
	for _, node := range d.Nodes {
		if n := ix.at(node.Path); !node.Common && n != nil && n.Hardware != nil && !slices.Contains(found, n.Hardware) {
			found = append(found, n.Hardware)
		}
	}
	slices.SortFunc(found, func(a, b *device.Hardware) int { return ix.rank[a] - ix.rank[b] })
	return found
}

func (s *selection) addVirtual(m *config.Match) {
	for i := range m.Virtual {
		s.others = append(s.others, selected{single: true, virtual: &m.Virtual[i], dangerous: m.Dangerous})
	}
}

// UsesCDIDevices reports whether a configuration looks at CDI devices of the
// host.
func UsesCDIDevices(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Resources, func(r config.Resource) bool {
		return len(r.Container.CDIDevices) > 0 ||
			slices.ContainsFunc(r.Match, func(m config.Match) bool { return !m.CDIDevice.Empty() })
	})
}
