// Package matchers turns a configuration and a snapshot of a host into the
// devices that each resource offers. It is a pure function: whatever asks,
// the service or a command, gets the same answer, and a recorded machine can
// be asked anywhere.
//
// It goes in four steps, a file each: which nodes and hardware the matches of
// a resource select (selection.go, with one predicate a kind: glob.go, usb.go,
// pci.go, vfio.go), what of it an earlier resource has taken (claims.go), and what a
// device brings into a container (offer.go, companion.go), with the variables
// of texts (variables.go). What a match compares and what a variable stands
// for come from one table a kind, so that they cannot disagree.
package matchers

import (
	"cmp"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/health"
)

// Options say what of the host a snapshot does not.
type Options struct {
	// NodeName is the name of the Kubernetes node; empty is unknown.
	NodeName string
	// Exists reports whether there is something at a path of the host that
	// the snapshot does not know: what is outside /dev, and what is no device
	// node. Where it is nil, all is there.
	Exists func(hostPath string) bool
	// Glob lists the paths of the host that match the pattern of a companion
	// that is mounted. Where it is nil, only what the snapshot knows is found.
	Glob func(pattern string) []string
	// Attr reads an attribute of a directory of sysfs, both relative as in a
	// snapshot; the name may have wildcards, and the first that matches counts.
	// found is false where the directory lacks it. Where Attr is nil, nothing
	// has attributes.
	Attr func(dir, name string) (value string, found bool)
	// Driver is the driver of a directory of sysfs, empty for none. Where it
	// is nil, nothing has drivers.
	Driver func(dir string) string
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
// A device goes to the first resource that selects it. An ID is offered once;
// a node, too, but for companions.
func Match(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) Result {
	ix := newIndex(snap)
	taken := newClaims()
	var result Result
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		result.Notes = append(result.Notes, ix.directoryNotes(r)...)
		b := newBuilder(ix, r, forms, opts)
		found := ix.selectDevices(r)
		result.Notes = append(result.Notes, ix.vfioNotes(r, found)...)
		offers := make([]device.Offer, 0, len(found))
		checks := map[string]health.Check{}
		for _, s := range taken.take(r, found) {
			o, check := b.offer(s)
			if !taken.id(r, s, o.ID) {
				continue
			}
			offers = append(offers, o)
			if r.Health != nil && o.Problem == "" {
				checks[o.ID] = check
			}
		}
		result.Notes = append(result.Notes, taken.notes(r)...)
		slices.SortFunc(offers, func(a, b device.Offer) int { return cmp.Compare(a.ID, b.ID) })
		result.Resources = append(result.Resources, Matched{Resource: r, Name: r.Name, Offers: offers, Checks: checks})
	}
	return result
}
