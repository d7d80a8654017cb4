package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// run is one run of Match. It is used once, in one goroutine. The steps of the package are its
// methods.
type run struct {
	Options
	snap  *device.Snapshot
	forms device.Forms
	// names has the paths of each node of the snapshot, see namesOf.
	names map[*device.Node][]string
	// byGroup has the functions of each IOMMU group.
	byGroup map[string][]*device.Hardware

	// keys has the keys of the nodes of hardware. It is filled in by key, because device.NodeKeys
	// has to compare all nodes of the hardware.
	keys map[*device.Hardware]map[*device.Node]string
	// named has the resource of each name. A fixed name is entered before any resource is matched
	// (inactive), a name with variables when its first device is offered.
	named map[string]*config.Resource
	// owners has the first resource that claims hardware, a node or candidate.other, see claim. Keys of different
	// types do not collide, so that one map is enough.
	owners map[any]*config.Resource
	// ids has the offered IDs.
	ids map[string]bool
	// companions has the results of globs of companions. Without variables, the result is the same for
	// each device.
	companions map[companionGlob]companionFiles
	// deadline limits the time of the current resource, and unknown are its keys that could not be read.
	deadline deadline
	unknown  []unknown
	// room is how much of device.MaxOffered is left. A resource may use half of it, so that some
	// is left for the resources after it.
	room int
	// left and offered are what happened to the devices of the current resource, for Explain.
	left    []leftOut
	offered []offered
	result  Result
}

// leftOut is a device that the current resource selects and does not offer.
type leftOut struct {
	device *candidate
	// owner is the resource that has the device, or nil.
	owner *config.Resource
	// why is the reason, for an administrator. It is empty if there is an owner.
	why  string
	note devicesNote
}

// devicesNote is a note about all devices that are left out for the same reason.
type devicesNote struct {
	// Note has the text before the names of the devices, and after the text that follows them. Without any
	// text there is no note.
	Note
	after string
}

// excluded is the reason if an exclude selects the device.
const excluded = ""

// offered is a device that the current resource offers.
type offered struct {
	device *candidate
	id     string
	// name is the name of the resource.
	name string
}

// drop records that a rule drops a device. Only Explain says so.
func (m *run) drop(c *candidate, why string) {
	m.left = append(m.left, leftOut{
		device: c,
		why:    why,
	})
}

// dropFault is like drop for a mistake in the configuration, which is a note as well.
func (m *run) dropFault(r *config.Resource, c *candidate, why string) {
	fault := noteAt(r.Place, "", "left out: ")
	fault.Error = true
	m.left = append(m.left, leftOut{
		device: c,
		why:    why,
		note:   devicesNote{fault, ": " + why},
	})
}

// noteLeftOut adds the notes about the devices that are left out. One for each reason is enough, even for
// hundreds of devices.
func (m *run) noteLeftOut() {
	devices := make(map[devicesNote][]*candidate)
	var notes []devicesNote
	for _, l := range m.left {
		if l.note == (devicesNote{}) {
			continue
		}
		if devices[l.note] == nil {
			notes = append(notes, l.note)
		}
		devices[l.note] = append(devices[l.note], l.device)
	}
	for _, n := range notes {
		all := devices[n]
		n.Text += andMore(all[0].describe(), len(all)) + n.after
		m.result.Notes = append(m.result.Notes, n.Note)
	}
}

// companionGlob is the glob of a companion, with the values of its variables.
type companionGlob struct {
	companion *config.Companion
	pattern   string
}

// companionFiles are the nodes that a companion selects, or the paths to mount.
type companionFiles struct {
	// nodes is empty for a companion outside of /dev.
	nodes []*device.Node
	// paths is empty for a companion that is a node.
	paths []string
}

// newRun returns a run that has not matched any resource. It reads nothing from the host.
func newRun(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options) *run {
	return &run{
		Options:    opts,
		snap:       snap,
		forms:      forms,
		names:      namesByNode(snap),
		byGroup:    functionsByGroup(snap),
		keys:       make(map[*device.Hardware]map[*device.Node]string),
		named:      make(map[string]*config.Resource),
		owners:     make(map[any]*config.Resource),
		ids:        make(map[string]bool),
		companions: make(map[companionGlob]companionFiles),
		deadline:   newDeadline(cfg, opts.Now),
		room:       device.MaxOffered,
		result:     Result{Unknown: make(map[*config.Resource]string)},
	}
}

// matchAll matches every resource. It calls after with each one, and with why it is inactive, if it is.
func (m *run) matchAll(cfg *config.Config, after func(r *config.Resource, inactive string)) {
	// All fixed names must be known before the first resource with variables in its name is
	// matched.
	inactive := m.inactive(cfg)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		note, isInactive := inactive[r]
		if isInactive {
			// Notes are in the order of the configuration, so that this one is added only now.
			m.result.Notes = append(m.result.Notes, note)
		} else {
			m.match(r)
		}
		after(r, note.Text)
	}
}

// match finds the offers of an active resource and adds them to the result. The order of the
// steps is part of the language: a resource cannot get a device that an earlier resource has
// claimed.
func (m *run) match(r *config.Resource) {
	m.deadline.begin()
	m.directoryNotes(r)
	m.excludeNotes(r)
	m.unknown = nil
	m.left = m.left[:0]
	m.offered = m.offered[:0]
	found := m.candidates(r)
	// A part of the devices, or devices with a part of their nodes, would be a wrong answer.
	if m.deadline.isOver {
		found = nil
	}
	// Claims are about the parts of a pool or a group, since other resources may select some of
	// them.
	claimed := m.claim(r, found)
	devices := m.combine(r, claimed)
	// Whether a device is usable without a dangerous node depends on all nodes of its hardware.
	m.leaveOutSideNodes(r, devices)
	// The notes below are about the offers that this resource adds.
	first := len(m.result.Resources)
	byName := m.byName(r, devices)
	// The names take from one budget in this order: it has to be the same in every run.
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		m.offerName(r, name, byName[name])
	}
	m.noteLeftOut()
	// Mounts and variables of the offers are read, too, so that unknown keys are reported only now.
	m.reportUnknown(r)
	m.notes(r, devices, m.result.Resources[first:])
}

// offerName offers the devices with one resource name, or notes that nothing is left of the budget even
// for a resource without devices.
func (m *run) offerName(r *config.Resource, name string, devices []*candidate) {
	if m.room/2 < device.ResourceParts {
		m.tooMuch(r, "resource "+name, devices, device.ResourceParts, m.room/2)
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
	// used is what this name takes. It is subtracted at the end, so that half of what earlier
	// names left is the limit for all devices of the name.
	used := device.ResourceParts
	for i, c := range devices {
		b := m.offer(r, c, name)
		// A variable may have no value only because its glob was not compared.
		if m.deadline.isOver {
			break
		}
		o := &b.offer
		parts := o.Parts()
		if r.Health != nil {
			parts += checkParts
		}
		// The devices after it are not built: each may have texts of a mebibyte.
		if used+parts > m.room/2 {
			left := devices[i:]
			what := fmt.Sprintf("%s of %d devices, each of which", andMore(c.describe(), len(left)), len(devices))
			m.tooMuch(r, what, left, parts, m.room/2-used)
			break
		}
		used += parts
		// The kubelet and the ledger know a device only by its ID.
		if m.ids[o.ID] {
			m.dropFault(r, c, fmt.Sprintf("another device has its ID %q", o.ID))
			continue
		}
		m.ids[o.ID] = true
		m.offered = append(m.offered, offered{
			device: c,
			id:     o.ID,
			name:   name,
		})
		// A device that cannot be allocated needs no check.
		if r.Health != nil && o.Problem == "" {
			out.Checks[o.ID] = b.check
		}
		out.Offers = append(out.Offers, *o)
	}
	m.room -= used
	// The limits above apply in the order of the snapshot. Only the result is sorted by ID.
	order.Sort(out.Offers, func(a, b device.Offer) int {
		return strings.Compare(a.ID, b.ID)
	})
	return out
}
