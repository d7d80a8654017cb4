// Package matchers turns a configuration and a snapshot of a host into the
// devices that each resource offers. The result depends on these, on Options and
// on what Host answers, and on nothing else: whatever asks, the service or a
// command, gets the same answer, and a recorded machine can be asked anywhere.
//
// Each active resource, in file order, goes through these steps:
//
//	select   what its matches select: nodes, hardware, interfaces, paths, CDI
//	         devices (predicate.go, select.go, vfio.go)
//	claim    what of it no earlier resource has (claims.go)
//	combine  what is one device, by each and group_by (select.go), and of
//	         which resource name (names.go)
//	offer    what a device brings into a container, with every variable filled
//	         in (offer.go, variables.go); what is refused (danger.go) or can't
//	         be resolved is the problem of the offer
//	note     what an administrator should know of it (notes.go)
package matchers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/pattern"
)

// Options say what of a node a snapshot does not.
type Options struct {
	// NodeName is the name of the Kubernetes node; empty is unknown.
	NodeName string
	// Allow is what the configuration may ask for.
	Allow config.Allow
	// CDIDevices are those of the host's specs that this program has not
	// written, by name.
	CDIDevices []device.CDIDevice
	// Host answers the rest; nil is a host of which nothing else is known.
	Host Host
}

// Host is what is read of a host only where a configuration asks for it. Paths
// of sysfs are relative as in a snapshot, all others are those of the host.
type Host interface {
	// Attr is an attribute of a directory of sysfs; the name may have wildcards,
	// and the first that matches counts. found is false where there is none.
	Attr(dir, name string) (value string, found bool)
	// Driver is the driver of a directory of sysfs, and CharDriver that of a
	// major number of character devices; empty for none.
	Driver(dir string) string
	CharDriver(major uint32) string
	// InUse says what the host uses a network interface for, empty for nothing.
	InUse(*device.Node) string
	// Exists reports whether there is something at a path, and Glob lists what
	// there is that a condition on paths selects.
	Exists(path string) bool
	Glob(pattern.Values) []string
}

// Result is what a configuration makes of a host.
type Result struct {
	// Resources in the order of the configuration, also those without offers.
	Resources []Offered
	// Inactive are the resources whose when does not hold on this host.
	Inactive []*config.Resource
	// Notes for the administrator, in the order of the configuration.
	Notes []Note
}

// Offered is a resource and what it offers, sorted by ID. Offers with a
// Problem are among them. A resource of the configuration whose name has
// variables is as many of these as it has names, and one that is not active
// is none.
type Offered struct {
	Resource *config.Resource
	// Name is complete, whatever variables the configuration has.
	Name   string
	Offers []device.Offer
	// Checks decide whether an offer without a Problem is healthy, by its ID;
	// empty where the resource has no health.
	Checks map[string]health.Check
}

// Note is something that an administrator should know about the
// configuration on this host. Error says that it can't be what was meant.
type Note struct {
	Place, Text, Hint string
	Error             bool
}

// Match finds what each resource offers on the host. forms says by which of
// its two IDs each USB device goes, see device.Forms; a nil forms will do
// where no two devices have one serial.
//
// A device goes to the first active resource that selects it, or to all of
// them where they say shared. An ID is offered once; a node, too, but for
// companions and what is shared.
func Match(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) Result {
	m := &run{
		index: newIndex(snap, opts), forms: forms, names: map[string]*config.Resource{},
		claims: claims{map[any]*config.Resource{}, map[string]*config.Resource{}, map[functionUse]*config.Resource{}}, companions: map[*config.Companion]found{},
	}
	inactive := m.inactive(cfg)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		if note, ok := inactive[r]; ok {
			m.result.Notes = append(m.result.Notes, note)
		} else {
			m.match(r)
		}
	}
	return m.result
}

// run is one Match.
type run struct {
	*index
	forms device.Forms
	// names of resources, and by which they are taken.
	names  map[string]*config.Resource
	claims claims
	// companions are what globs of companions select.
	companions map[*config.Companion]found
	result     Result
}

// found is nodes, or paths to mount.
type found struct {
	nodes []*device.Node
	paths []string
}

// match finds what an active resource offers.
func (m *run) match(r *config.Resource) {
	m.directoryNotes(r)
	found := m.candidates(r)
	m.vfioNotes(r, found)
	devices := m.combine(r, m.claim(r, found))
	named := m.byName(r, devices)
	var offers []device.Offer
	for _, name := range slices.Sorted(maps.Keys(named)) {
		m.names[name] = r
		out := m.offers(r, name, named[name])
		offers = append(offers, out.Offers...)
		m.result.Resources = append(m.result.Resources, out)
	}
	m.overlaps(r, devices)
	m.notes(r, devices, offers)
}

// offers makes what the devices of one name are offered as. An ID is offered
// once: two USB devices may have one serial, with nobody having decided yet
// which of them goes by it.
func (m *run) offers(r *config.Resource, name string, devices []*candidate) Offered {
	out := Offered{Resource: r, Name: name, Offers: make([]device.Offer, 0, len(devices)), Checks: map[string]health.Check{}}
	for _, c := range devices {
		o, check := m.offer(r, c, name)
		if m.claims.ids[o.ID] != nil {
			m.fault(r.Place, "", "%s is left out: another device has its ID %q", c.describe(), o.ID)
			continue
		}
		m.claims.ids[o.ID] = r
		out.Offers = append(out.Offers, o)
		if r.Health != nil && o.Problem == "" {
			out.Checks[o.ID] = check
		}
	}
	slices.SortFunc(out.Offers, func(a, b device.Offer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// inactive says why resources don't count on this host: their when does not
// hold, or an earlier active one has their name. Names that variables make give
// way to the others, wherever these stand: what a device says of itself must
// not push a resource out.
func (m *run) inactive(cfg *config.Config) map[*config.Resource]Note {
	notes := map[*config.Resource]Note{}
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		text, isError := m.unfulfilled(r.When)
		first := m.names[r.Name]
		switch {
		case text != "":
			m.result.Inactive = append(m.result.Inactive, r)
			notes[r] = Note{Place: r.Place, Text: "not active here: " + text, Error: isError}
		case len(r.NameText) > 0:
		case first != nil:
			notes[r] = Note{
				Place: r.Place,
				Text:  fmt.Sprintf("left out: %s has the same name and is active here, too", first.Place),
				Hint:  "at most one resource of a name may be active on a node: when tells them apart",
				Error: true,
			}
		default:
			m.names[r.Name] = r
		}
	}
	return notes
}

// unfulfilled says why a when does not hold, "" where it does, and whether that
// is an error.
func (m *run) unfulfilled(when *config.When) (why string, isError bool) {
	switch {
	case when == nil:
		return "", false
	case when.NodeName.Empty():
	case m.NodeName == "":
		return "when.node_name: " + noNodeName, true
	case !when.NodeName.Match(m.NodeName):
		return fmt.Sprintf("when.node_name: this is %q", m.NodeName), false
	}
	for _, p := range when.Exists {
		switch there := m.somethingAt(p.Positive()); {
		case there == "" && !p.Negated():
			return fmt.Sprintf("when.exists: nothing matches %q", p), false
		case there != "" && p.Negated():
			return fmt.Sprintf("when.exists: %q is there", there), false
		}
	}
	return "", false
}

// somethingAt returns the first path of the host that a glob matches. Below
// /dev it is one of the snapshot: that is what changes are told of.
func (m *run) somethingAt(v pattern.Values) string {
	if !strings.HasPrefix(v.Patterns()[0], "/dev/") {
		for _, found := range m.Host.Glob(v) {
			return found
		}
		return ""
	}
	for _, prefix := range v.Prefixes() {
		for _, n := range m.beginning(prefix) {
			if v.Match(n.path) {
				return n.path
			}
		}
	}
	if i := slices.IndexFunc(m.snap.Dirs, func(dir string) bool { return v.Match(dir) }); i >= 0 {
		return m.snap.Dirs[i]
	}
	return ""
}
