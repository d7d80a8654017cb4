package matchers

import (
	"fmt"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/pattern"
)

// active says which resources count on this host: those whose when holds,
// without those whose name an earlier one of them has. Names that variables
// make give way to the others, wherever these stand: what a device says of
// itself must not push a resource out. The others have a note that says why.
func (m *matching) active(cfg *config.Config) (active []bool, notes []Note) {
	active, notes = make([]bool, len(cfg.Resources)), make([]Note, len(cfg.Resources))
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		if note := m.ix.inactive(r); note != nil {
			notes[i] = *note
			m.result.Inactive = append(m.result.Inactive, r)
			continue
		}
		active[i] = true
		if len(r.NameText) > 0 {
			continue
		}
		if first := m.names[r.Name]; first != nil {
			active[i] = false
			notes[i] = Note{
				Place: r.Place,
				Text:  fmt.Sprintf("left out: %s has the same name and is active here, too", first.Place),
				Hint:  "at most one resource of a name may be active on a node: when tells them apart",
				Error: true,
			}
			continue
		}
		m.names[r.Name] = r
	}
	return active, notes
}

// inactive says why the when of a resource does not hold, nil where it does.
func (ix *index) inactive(r *config.Resource) *Note {
	if r.When == nil {
		return nil
	}
	note := &Note{Place: r.Place}
	if v := r.When.NodeName; !v.Empty() {
		switch {
		case ix.opts.NodeName == "":
			note.Text, note.Error = "not active here: when.node_name: "+noNodeName, true
			return note
		case !v.Match(ix.opts.NodeName):
			note.Text = fmt.Sprintf("not active here: when.node_name: this is %q", ix.opts.NodeName)
			return note
		}
	}
	for _, p := range r.When.Exists {
		wanted := p.Positive()
		switch there := ix.somethingAt(wanted); {
		case there == "" && !p.Negated():
			note.Text = fmt.Sprintf("not active here: when.exists: nothing matches %q", p)
			return note
		case there != "" && p.Negated():
			note.Text = fmt.Sprintf("not active here: when.exists: %q is there", there)
			return note
		}
	}
	return nil
}

// somethingAt returns the first path of the host that a glob matches. Below
// /dev it is one of the snapshot, since that is what is looked at again when
// something changes.
func (ix *index) somethingAt(v pattern.Values) string {
	if !strings.HasPrefix(v.Patterns()[0], "/dev/") {
		if ix.opts.Glob != nil {
			for _, found := range ix.opts.Glob(v) {
				return found
			}
		}
		return ""
	}
	for _, n := range ix.snap.Nodes {
		if v.Match(n.Path) {
			return n.Path
		}
	}
	for _, l := range ix.snap.Links {
		if v.Match(l.Path) {
			return l.Path
		}
	}
	for _, d := range ix.snap.Dirs {
		if v.Match(d) {
			return d
		}
	}
	return ""
}
