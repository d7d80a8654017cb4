// Package matchers turns a configuration and a snapshot of a host into the
// devices that each resource offers. It is a pure function: whatever asks,
// the service or a command, gets the same answer, and a recorded machine can
// be asked anywhere.
//
// It goes in steps, a file or two each: which resources are active
// (active.go); which nodes, hardware and other things the matches of a resource
// select (selection.go and others.go, with one predicate a kind: glob.go,
// usb.go, pci.go, mdev.go, net.go, vfio.go, and sys.go for what is read from
// sysfs); what of it an earlier resource has taken (claims.go); what of the rest
// is one device (pool.go) and of which name (names.go); and what a device brings
// into a container (offer.go, mount.go, handed.go, companion.go), with its ID
// (identity.go), the variables of texts (variables.go, values.go) and what is
// refused (danger.go). What a match compares and what a variable stands for come
// from one table a kind, so that they cannot disagree. What an administrator
// should know of all this are notes (notes.go).
package matchers

import (
	"cmp"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/pattern"
)

// Options say what of the host a snapshot does not.
type Options struct {
	// NodeName is the name of the Kubernetes node; empty is unknown.
	NodeName string
	// Exists reports whether there is something at a path of the host that
	// the snapshot does not know: what is outside /dev, and what is no device
	// node. Where it is nil, all is there.
	Exists func(hostPath string) bool
	// Glob lists the paths of the host that a condition on paths selects. Where
	// it is nil, only what the snapshot knows is found.
	Glob func(pattern.Values) []string
	// Attr reads an attribute of a directory of sysfs, both relative as in a
	// snapshot; the name may have wildcards, and the first that matches counts.
	// found is false where the directory lacks it. Where Attr is nil, nothing
	// has attributes.
	Attr func(dir, name string) (value string, found bool)
	// Driver is the driver of a directory of sysfs, empty for none. Where it
	// is nil, nothing has drivers.
	Driver func(dir string) string
	// InUse says what the host itself uses a network interface for, empty for
	// nothing. Where it is nil, it uses none.
	InUse func(*device.Node) string
	// CharDriver is the driver of a major number of character devices, empty for
	// none. Where it is nil, only fixed numbers have one.
	CharDriver func(major uint32) string
	// CDIDevices are those of the host's specs that this program has not
	// written, by name.
	CDIDevices []device.CDIDevice
	// Allow is what the configuration may ask for.
	Allow config.Allow
}

// Result is what a configuration makes of a host.
type Result struct {
	// Resources in the order of the configuration, also those without offers.
	Resources []Matched
	// Inactive are the resources whose when does not hold on this host.
	Inactive []*config.Resource
	// Notes for the administrator, in the order of the configuration.
	Notes []Note
}

// Matched is a resource and what it offers, sorted by ID. Offers with a
// Problem are among them. A resource of the configuration whose name has
// variables is as many of these as it has names, and one that is not active
// is none.
type Matched struct {
	Resource *config.Resource
	// Name is complete, whatever variables the configuration has.
	Name   string
	Offers []device.Offer
	// Checks are what is to be looked at before an offer without a Problem is
	// healthy, by its ID; empty where the resource has no health.
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
	ix := newIndex(snap)
	ix.opts = opts
	m := &matching{ix: ix, forms: forms, taken: newClaims(), names: map[string]*config.Resource{}, halves: halves{}}
	active, why := m.active(cfg)
	for i := range cfg.Resources {
		if active[i] {
			m.match(&cfg.Resources[i])
		} else {
			m.note(why[i])
		}
	}
	return m.result
}

// matching is a Match under way.
type matching struct {
	ix    *index
	forms device.Forms
	taken *claims
	// names are those that are taken, and by whom.
	names  map[string]*config.Resource
	halves halves
	result Result
}

// match finds what an active resource offers.
func (m *matching) match(r *config.Resource) {
	m.note(m.ix.directoryNotes(r)...)
	b := newBuilder(m.ix, r, m.forms)
	found := m.ix.selectDevices(r)
	m.note(m.ix.vfioNotes(r, found)...)
	devices := b.combine(m.taken.take(r, found))
	byName, notes := b.names(devices, m.names)
	m.note(notes...)
	var offers []device.Offer
	for _, n := range byName {
		m.names[n.name] = r
		out := m.offers(b, n)
		offers = append(offers, out.Offers...)
		m.result.Resources = append(m.result.Resources, out)
	}
	m.note(m.taken.notes(r)...)
	if len(m.ix.bus[device.MDevBus]) > 0 {
		m.note(m.halves.notes(r, devices)...)
	}
	m.note(leftNotes(r, devices, offers)...)
	m.note(m.ix.notes(r, devices, offers)...)
}

// offers makes what the devices of one name are offered as.
func (m *matching) offers(b *builder, n named) Matched {
	out := Matched{Resource: b.r, Name: n.name, Offers: make([]device.Offer, 0, len(n.devices)), Checks: map[string]health.Check{}}
	for _, s := range n.devices {
		o, check := b.offer(s, n.name)
		if !m.taken.id(b.r, s, o.ID) {
			continue
		}
		out.Offers = append(out.Offers, o)
		if b.r.Health != nil && o.Problem == "" {
			out.Checks[o.ID] = check
		}
	}
	slices.SortFunc(out.Offers, func(a, b device.Offer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (m *matching) note(notes ...Note) { m.result.Notes = append(m.result.Notes, notes...) }
