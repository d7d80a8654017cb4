// Package matchers turns a configuration and a snapshot of a host into the
// devices that each resource offers. It is deterministic given these, Options
// and the answers of Host, so that the service and all commands agree, and a
// recorded machine is matched anywhere.
//
// Each active resource, in file order, goes through these steps:
//
//	select   nodes, hardware, interfaces, paths and CDI devices, by its matches
//	         (predicate.go, select.go, vfio.go)
//	claim    what no earlier resource has (claims.go)
//	combine  into devices, by each and group_by (select.go), and by the name of
//	         the resource (names.go)
//	offer    nodes, mounts and environment of a device, with every variable
//	         filled in (offer.go, container.go, variables.go); a device that is
//	         dangerous (danger.go) or incomplete is offered with a Problem
//	note     hints for the administrator (notes.go)
//
// Explain says why, by the same predicates (explain.go).
package matchers

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Options are the other inputs of Match.
type Options struct {
	// NodeName is the name of the Kubernetes node; empty is unknown.
	NodeName string
	// Allow are the privileges of the configuration.
	Allow config.Allow
	// CDIDevices of the host's own specs, by name.
	CDIDevices []device.CDIDevice
	CDIUnread  error // why they are not known; nil if they are
	// CDI is set if CDI specs can be written.
	CDI bool
	// Host reads the rest.
	Host Host
}

// Host reads data that only some configurations need. Paths of sysfs are relative as in
// a snapshot, all others are those of the host.
type Host interface {
	// Attr is an attribute of a directory of sysfs, nil for none. The name may have
	// wildcards, and so several values. unread: it is there, and could not be read yet.
	// *entries limits the directory entries to read, and is decremented by their number:
	// if it reaches 0, or is set to NoAnswer, the answer is unknown.
	Attr(dir, name string, entries *int) (values []string, unread bool)
	// Driver is the driver of a directory of sysfs, CharDriver that of a major
	// number of character devices; empty for none.
	Driver(dir string) string
	CharDriver(major uint32) string
	// InUse is the use of a network interface by the host, empty for none.
	InUse(*device.Node) string
	// Exists reports whether a path exists. Glob lists the paths that a
	// condition selects; entries is as for Attr.
	Exists(path string, entries *int) bool
	Glob(v pattern.Values, entries *int) []string
}

// Result is the result of Match.
type Result struct {
	// Resources in the order of the configuration, also those without offers.
	Resources []Offered
	// Inactive are the resources whose when does not hold on this host.
	Inactive []*config.Resource
	// Notes for the administrator, in the order of the configuration.
	Notes []Note
	// Unknown is why the devices of some resources are not all known: a search takes too
	// long.
	Unknown map[*config.Resource]string
	// LeftOut is the number of devices that are not offered, since they would take too much
	// memory.
	LeftOut int
}

// Offered is an active resource with its offers, sorted by ID, also those with a
// Problem. A resource whose name has variables is one of these for each name.
type Offered struct {
	Resource *config.Resource
	// Name is complete.
	Name   string
	Offers []device.Offer
	// Checks are the health checks of offers without a Problem, by ID; empty
	// where the resource has no health.
	Checks map[string]device.Check
}

// Note is a hint about the configuration on this host. Error: it is a mistake.
// OfNode: only on a node whose name is not known; a command may run elsewhere.
type Note struct {
	config.Problem
	Error, OfNode bool
}

// Match finds the offers of each resource. forms has the form of the ID of each
// USB device, see device.Forms; it may be nil where serial numbers are unique.
//
// A device goes to the first active resource that selects it, or to all that
// have shared = true. Each ID is offered once, and so is each node, but for
// companions and shared devices.
func Match(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) Result {
	m := newRun(cfg, snap, forms, opts)
	m.matchAll(cfg)
	return m.result
}

func newRun(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) *run {
	return &run{
		Options:    opts,
		snap:       snap,
		forms:      forms,
		attributes: device.Attributes(),
		links:      sync.OnceValue(func() map[*device.Node][]string { return linksByNode(snap) }),
		byNumber:   sync.OnceValue(func() map[number]*device.Node { return newNumberIndex(snap) }),
		byAddress:  sync.OnceValue(func() map[string]*device.Hardware { return functionsByAddress(snap) }),
		byGroup:    sync.OnceValue(func() map[string][]*device.Hardware { return functionsByGroup(snap) }),
		eventNodes: sync.OnceValue(func() []*device.Node { return newEventNodes(snap) }),
		keys:       map[*device.Hardware]map[*device.Node]string{},
		ids:        map[*device.Node]string{},
		named:      map[string]*config.Resource{},
		picked:     map[*device.Node]bool{},
		claims:     claims{map[any]*config.Resource{}, map[string]*config.Resource{}},
		companions: map[*config.Companion]found{},
		budget:     newBudget(cfg),
		attrs:      map[attrKey]attrFound{},
		memory:     device.MaxMemory,
		checks:     maxChecks,
	}
}

// matchAll matches every resource, and returns why some are inactive.
func (m *run) matchAll(cfg *config.Config) (inactive map[*config.Resource]Note) {
	inactive = m.inactive(cfg)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		if note, ok := inactive[r]; ok {
			m.result.Notes = append(m.result.Notes, note)
		} else {
			m.match(r)
		}
	}
	return inactive
}

// run is one Match.
type run struct {
	Options
	snap       *device.Snapshot
	forms      device.Forms
	attributes []device.Attribute

	// Indexes of the snapshot that few configurations need, built on first use: Match runs
	// for every event.
	links      func() map[*device.Node][]string     // paths of links, by node
	byNumber   func() map[number]*device.Node       // nodes in sysfs
	byAddress  func() map[string]*device.Hardware   // PCI functions
	byGroup    func() map[string][]*device.Hardware // functions, by IOMMU group
	eventNodes func() []*device.Node                // nodes of input events
	// keys of the nodes of hardware, and IDs of nodes.
	keys map[*device.Hardware]map[*device.Node]string
	ids  map[*device.Node]string

	// named are the resources by name.
	named  map[string]*config.Resource
	claims claims
	// picked are the selected nodes of the current resource.
	picked map[*device.Node]bool
	// companions are the results of globs of companions.
	companions map[*config.Companion]found
	result     Result
	// budget limits what it reads, and attrs are the attributes read so far.
	budget budget
	attrs  map[attrKey]attrFound
	// memory is how much of device.MaxMemory is left, and checks how many of maxChecks.
	memory int
	checks int
}

// found is nodes, or paths to mount.
type found struct {
	nodes []*device.Node
	paths []string
}

// match finds the offers of an active resource.
func (m *run) match(r *config.Resource) {
	m.directoryNotes(r)
	m.budget.begin()
	found := m.candidates(r)
	m.vfioNotes(r)
	devices := m.combine(r, m.claim(r, found))
	m.leaveOutSideNodes(r, devices)
	byName := m.byName(r, devices)
	var offers []device.Offer
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if m.memory/2 < device.ResourceMemory {
			m.tooMuch(r, "resource "+name, len(byName[name]), device.ResourceMemory)
			continue
		}
		m.named[name] = r
		out := m.offers(r, name, byName[name])
		offers = append(offers, out.Offers...)
		m.result.Resources = append(m.result.Resources, out)
	}
	m.reportUnknown(r)
	m.overlaps(r, devices)
	m.notes(r, devices, offers)
}

// offers makes the offers of devices with one resource name. Duplicate IDs are
// left out: two USB devices may have one serial number before ledger has decided
// which of them keeps it.
func (m *run) offers(r *config.Resource, name string, devices []*candidate) Offered {
	out := Offered{
		Resource: r,
		Name:     name,
		Offers:   make([]device.Offer, 0, len(devices)),
		Checks:   map[string]device.Check{},
	}
	used := device.ResourceMemory
	var left []*candidate
	for _, c := range devices {
		needs := memoryOf(r, c)
		if used+needs > m.memory/2 {
			left = append(left, c)
			continue
		}
		b := m.offer(r, c, name)
		o := b.offer
		used += max(needs, o.Memory())
		if m.claims.ids[o.ID] != nil {
			m.fault(r.Place, "", "%s is left out: another device has its ID %q", c.describe(), o.ID)
			continue
		}
		m.claims.ids[o.ID] = r
		if r.Health != nil && o.Problem == "" {
			m.addCheck(out.Checks, &o, b.check)
		}
		out.Offers = append(out.Offers, o)
	}
	m.checks -= len(out.Checks)
	m.memory -= used
	if len(left) > 0 {
		what := fmt.Sprintf("%s of %d devices, each of which", andMore(left[0].describe(), len(left)), len(devices))
		m.tooMuch(r, what, len(left), memoryOf(r, left[0]))
	}
	sort.Slice(out.Offers, func(i, j int) bool { return out.Offers[i].ID < out.Offers[j].ID })
	return out
}

// inactive lists the resources that are not active on this host, with the
// reason: their when does not hold, or an earlier resource has their name. Names
// without variables take precedence, wherever they stand: hardware must not
// displace a resource by the name that it makes.
func (m *run) inactive(cfg *config.Config) map[*config.Resource]Note {
	notes := map[*config.Resource]Note{}
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		m.budget.begin()
		text, isError := m.whyInactive(r.When)
		first := m.named[r.Name]
		switch {
		case text != "":
			m.result.Inactive = append(m.result.Inactive, r)
			notes[r] = Note{config.Problem{Place: r.Place, Text: "not active here: " + text}, isError, isError}
		case len(r.NameText) > 0:
		case first != nil:
			notes[r] = Note{Error: true, Problem: config.Problem{
				Place: r.Place,
				Text:  fmt.Sprintf("left out: %s has the same name and is active here, too", first.Place),
				Hint:  "at most one resource of a name may be active on a node: when tells them apart",
			}}
		default:
			m.named[r.Name] = r
		}
	}
	return notes
}

// whyInactive is the reason why a when does not hold, "" if it does, and whether
// that is an error.
func (m *run) whyInactive(when *config.When) (why string, isError bool) {
	switch {
	case when == nil:
		return "", false
	case when.NodeName.Empty():
	case m.NodeName == "":
		return "when.node_name: " + noNodeName, true
	case !when.NodeName.Match(m.NodeName):
		return fmt.Sprintf("when.node_name: this is %q", m.NodeName), false
	}
	for _, p := range when.Exists.Split() {
		there, complete := m.firstMatch(p.Positive())
		switch {
		case there == "" && !complete:
			return fmt.Sprintf("when.exists: %q: %s", p.Patterns()[0], tooMuchToRead), true
		case there == "" && !p.Negative():
			return fmt.Sprintf("when.exists: nothing matches %q", p.Patterns()[0]), false
		case there != "" && p.Negative():
			return fmt.Sprintf("when.exists: %q is there", there), false
		}
	}
	return "", false
}

// firstMatch returns the first path of the host that a glob matches; below /dev
// it is one of the snapshot, whose changes are events. If complete is not set, there may be
// another one.
func (m *run) firstMatch(v pattern.Values) (first string, complete bool) {
	if !strings.HasPrefix(v.Patterns()[0], "/dev/") {
		found, complete := m.search("", "when.exists", v)
		if len(found) == 0 {
			return "", complete
		}
		return found[0], complete
	}
	for _, prefix := range v.Prefixes() {
		for path := range m.names(prefix) {
			if v.Match(path) {
				return path, true
			}
		}
	}
	i := slices.IndexFunc(m.snap.Dirs, func(dir string) bool { return v.Match(dir) })
	if i < 0 {
		return "", true
	}
	return m.snap.Dirs[i], true
}
