package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// run is one run of Match.
type run struct {
	Options
	snap       *device.Snapshot
	forms      device.Forms
	attributes []device.Attribute
	indexes    indexes

	// keys has the keys of the nodes of hardware.
	keys map[*device.Hardware]map[*device.Node]string
	// ids has the IDs of nodes.
	ids map[*device.Node]string
	// notedVirtual is set if a virtual match on every node was reported.
	notedVirtual bool
	// named has the resource of each name.
	named  map[string]*config.Resource
	claims claims
	// picked are the selected nodes of the current resource.
	picked map[*device.Node]bool
	// companions has the results of globs of companions.
	companions map[*config.Companion]companionFiles
	// budget limits the reads of the run.
	budget budget
	// memory is how much of device.MaxMemory is left.
	memory int
	// checks is how many of maxChecks are left.
	checks int
	// recorder records for Explain. It is nil for Match.
	recorder *recorder
	result   Result
}

// companionFiles are the nodes that a companion selects, or the paths to mount.
type companionFiles struct {
	nodes []*device.Node
	paths []string
}

func newRun(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) *run {
	return &run{
		Options:    opts,
		snap:       snap,
		forms:      forms,
		attributes: device.Attributes(),
		indexes:    newIndexes(snap),
		keys:       make(map[*device.Hardware]map[*device.Node]string),
		ids:        make(map[*device.Node]string),
		named:      make(map[string]*config.Resource),
		claims:     newClaims(),
		picked:     make(map[*device.Node]bool),
		companions: make(map[*config.Companion]companionFiles),
		budget:     newBudget(cfg),
		memory:     device.MaxMemory,
		checks:     maxChecks,
	}
}

// indexes are indexes of the snapshot that few configurations need. They are built on first
// use, because Match runs for every event.
type indexes struct {
	// links has the paths of links to a node.
	links func() map[*device.Node][]string
	// byNumber has the nodes in sysfs.
	byNumber func() map[number]*device.Node
	// byAddress has the PCI functions.
	byAddress func() map[string]*device.Hardware
	// byGroup has the functions of each IOMMU group.
	byGroup func() map[string][]*device.Hardware
	// eventNodes are the nodes of input events.
	eventNodes func() []*device.Node
}

func newIndexes(snap *device.Snapshot) indexes {
	return indexes{
		links: sync.OnceValue(func() map[*device.Node][]string {
			return linksByNode(snap)
		}),
		byNumber: sync.OnceValue(func() map[number]*device.Node {
			return newNumberIndex(snap)
		}),
		byAddress: sync.OnceValue(func() map[string]*device.Hardware {
			return functionsByAddress(snap)
		}),
		byGroup: sync.OnceValue(func() map[string][]*device.Hardware {
			return functionsByGroup(snap)
		}),
		eventNodes: sync.OnceValue(func() []*device.Node {
			return newEventNodes(snap)
		}),
	}
}

// matchAll matches every resource, and returns why some are inactive.
func (m *run) matchAll(cfg *config.Config) (inactive map[*config.Resource]Note) {
	inactive = m.inactive(cfg)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		note, isInactive := inactive[r]
		if isInactive {
			m.result.Notes = append(m.result.Notes, note)
		} else {
			m.match(r)
		}
	}
	return inactive
}

// match finds the offers of an active resource.
func (m *run) match(r *config.Resource) {
	m.directoryNotes(r)
	m.budget.begin()
	m.recorder.begin(r)
	found := m.candidates(r)
	m.vfioNotes(r)
	claimed := m.claim(r, found)
	devices := m.combine(r, claimed)
	m.leaveOutSideNodes(r, devices)
	first := len(m.result.Resources)
	byName := m.byName(r, devices)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		m.offerName(r, name, byName[name])
	}
	m.reportUnknown(r)
	m.overlaps(r, devices)
	m.notes(r, devices, m.result.Resources[first:])
}

// offerName offers the devices with one resource name.
func (m *run) offerName(r *config.Resource, name string, devices []*candidate) {
	if m.memory/2 < device.ResourceMemory {
		for _, c := range devices {
			m.recorder.drop(c, "the resource would take too much memory")
		}
		m.tooMuch(r, "resource "+name, devices, device.ResourceMemory)
		return
	}
	m.named[name] = r
	m.result.Resources = append(m.result.Resources, m.offers(r, name, devices))
}

// offers makes the offers of devices with one resource name. Repeated IDs are left out: two
// USB devices may have one serial number before the ledger has decided which of them keeps it.
func (m *run) offers(r *config.Resource, name string, devices []*candidate) Offered {
	out := Offered{
		Resource: r,
		Name:     name,
		Offers:   make([]device.Offer, 0, len(devices)),
		Checks:   make(map[string]device.Check),
	}
	used := device.ResourceMemory
	var left []*candidate
	for _, c := range devices {
		needs := memoryOf(r, c)
		if used+needs > m.memory/2 {
			left = append(left, c)
			m.recorder.drop(c, "it would take too much memory")
			continue
		}
		b := m.offer(r, c, name)
		o := &b.offer
		used += max(needs, o.Memory())
		if m.claims.ids[o.ID] != nil {
			m.recorder.drop(c, "another device has its ID %q", o.ID)
			m.fault(r.Place, "", "%s is left out: another device has its ID %q", c.describe(), o.ID)
			continue
		}
		m.claims.ids[o.ID] = r
		m.recorder.offer(b)
		if r.Health != nil && o.Problem == "" {
			m.addCheck(out.Checks, o, b.check)
		}
		out.Offers = append(out.Offers, *o)
	}
	m.checks -= len(out.Checks)
	m.memory -= used
	if len(left) > 0 {
		names := andMore(left[0].describe(), len(left))
		what := fmt.Sprintf("%s of %d devices, each of which", names, len(devices))
		m.tooMuch(r, what, left, memoryOf(r, left[0]))
	}
	slices.SortFunc(out.Offers, func(a, b device.Offer) int {
		return strings.Compare(a.ID, b.ID)
	})
	return out
}
