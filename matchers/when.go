package matchers

import (
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// inactive lists the resources that are not active on this host, with the reason: their when
// does not hold, or an earlier resource has their name. Names without variables take precedence
// wherever they are in the file: hardware must not displace a resource by a name that it makes.
//
// It also enters the fixed names of all active resources in m.named.
func (m *run) inactive(cfg *config.Config) map[*config.Resource]Note {
	notes := make(map[*config.Resource]Note)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		m.deadline.begin()
		text, isError := m.whyInactive(r.When)
		if text != "" {
			m.result.Inactive = append(m.result.Inactive, r)
			note := noteAt(r.Place, "", "not active here: "+text)
			note.Error = isError
			// Both errors depend on the machine: an unknown node name, and a search that was
			// cut off.
			note.OfNode = isError
			notes[r] = note
			continue
		}
		// nameOf compares each made name with the names of other resources.
		if len(r.NameText) > 0 {
			continue
		}
		// Several resources may have one name, as long as their when selects only one of them on
		// a node.
		first := m.named[r.Name]
		if first == nil {
			m.named[r.Name] = r
			continue
		}
		note := noteAt(
			r.Place,
			"at most one resource with a name may be active on a node: use when to distinguish them",
			fmt.Sprintf("left out: %s has the same name and is active here, too", first.Place),
		)
		note.Error = true
		notes[r] = note
	}
	return notes
}

// whyInactive returns the reason why a when does not hold, or "", and whether that is an error.
func (m *run) whyInactive(when *config.When) (why string, isError bool) {
	// A resource without when is active on every node.
	if when == nil {
		return "", false
	}
	if !when.NodeName.Empty() {
		// Without the name, neither answer would be safe: the resource is inactive, and that is
		// an error.
		if m.NodeName == "" {
			return "when.node_name: " + noNodeName, true
		}
		if !when.NodeName.Match(m.NodeName) {
			return fmt.Sprintf("when.node_name: this is %q", m.NodeName), false
		}
	}
	// All patterns must hold, unlike the patterns of other keys. So they are compared one by one.
	for _, p := range when.Exists.Split() {
		path, complete := m.firstMatch(p.Positive())
		written := p.Patterns()[0]
		switch {
		// After an incomplete search, neither the pattern nor its negation holds.
		case path == "" && !complete:
			return fmt.Sprintf("when.exists: %q: %s", written, tooMuchToRead), true
		case path == "" && !p.Negative():
			return fmt.Sprintf("when.exists: nothing matches %q", written), false
		case path != "" && p.Negative():
			return fmt.Sprintf("when.exists: %q exists", path), false
		}
	}
	return "", false
}

// firstMatch returns the first path of the host that a glob matches. Below /dev, it searches the nodes, links and
// directories of the snapshot. If complete is not set, the search was cut off, and there may be another path.
func (m *run) firstMatch(v pattern.Values) (first string, complete bool) {
	// A directory exists, too, even if it has no node.
	paths := slices.Clone(m.snap.Dirs)
	for _, n := range m.snap.Nodes {
		paths = append(paths, m.namesOf(n)...)
	}
	for _, path := range paths {
		if m.isLate(v) {
			return "", false
		}
		if v.Match(path) {
			return path, true
		}
	}
	found, complete := m.search("", "when.exists", v)
	if len(found) == 0 {
		return "", complete
	}
	return found[0], complete
}
