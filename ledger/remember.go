package ledger

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/device"
)

// Remembered is what of a resource outlives a restart: the kubelet's
// checkpoint holds its devices, and the first list must have them all.
type Remembered struct {
	Name    string             `json:"name"`
	Devices []RememberedDevice `json:"devices"`
}

// RememberedDevice is a listed device.
type RememberedDevice struct {
	ID string `json:"id"`
	// Slots up to the last one that is listed, retired ones included.
	Slots int      `json:"slots"`
	NUMA  []int    `json:"numa,omitempty"`
	Nodes []string `json:"nodes,omitempty"` // keys, sorted
	// Moves says that its interfaces move into the container that holds it.
	// Hardware is the sysfs path of what they belong to, if anything, in the
	// boot that it was seen in.
	Moves    bool   `json:"moves,omitempty"`
	Hardware string `json:"hardware,omitempty"`
}

// Remember returns what is to be kept of a state, by name and ID. There are no
// times in it: clocks may be wrong while a machine boots.
func (s State) Remember() []Remembered {
	var all []Remembered
	for _, res := range s.resources {
		if len(res.records) == 0 {
			continue
		}
		kept := Remembered{Name: res.name}
		for _, id := range slices.SortedFunc(maps.Keys(res.records), device.CompareNatural) {
			rec := res.records[id]
			slots := rec.offer.Slots
			if n := len(rec.retired); n > 0 {
				slots = rec.retired[n-1].slot + 1
			}
			kept.Devices = append(kept.Devices, RememberedDevice{ID: id, Slots: slots, NUMA: rec.offer.NUMA, Nodes: rec.keys, Moves: rec.net.moves, Hardware: rec.net.hardware})
		}
		all = append(all, kept)
	}
	slices.SortFunc(all, func(a, b Remembered) int { return device.CompareNatural(a.Name, b.Name) })
	return all
}

// Names lists the resources of which anything is listed, sorted.
func (s State) Names() []string {
	var names []string
	for _, res := range s.resources {
		if len(res.records) > 0 {
			names = append(names, res.name)
		}
	}
	slices.SortFunc(names, device.CompareNatural)
	return names
}

// State is Restore, for the boot with an ID that differs from boot to boot
// (/proc/sys/kernel/random/boot_id); empty is unknown. What had moved into a
// container before the machine booted has not.
func (p Persisted) State(boot string) State {
	all := p.Resources
	if boot == "" || boot != p.Boot {
		all = make([]Remembered, 0, len(p.Resources))
		for _, kept := range p.Resources {
			kept.Devices = slices.Clone(kept.Devices)
			for i := range kept.Devices {
				kept.Devices[i].Moves, kept.Devices[i].Hardware = false, ""
			}
			all = append(all, kept)
		}
	}
	return Restore(all)
}

// Restore returns the state of a process that has just started: what is
// remembered is listed, and gone until it is matched. Its time starts anew.
// What can't have been listed is left out.
func Restore(all []Remembered) State {
	var s State
	names, ids := make(map[string]bool), make(map[string]bool)
	for _, kept := range all {
		if kept.Name == "" || names[kept.Name] {
			continue
		}
		names[kept.Name] = true
		res := resource{name: kept.Name, records: make(map[string]record), pending: make(map[string]bool)}
		for _, d := range kept.Devices {
			negative := slices.ContainsFunc(d.NUMA, func(n int) bool { return n < 0 })
			if !device.ValidID(d.ID) || ids[d.ID] || d.Slots < 1 || d.Slots > device.MaxSlots || negative {
				continue
			}
			ids[d.ID] = true
			res.records[d.ID] = record{offer: device.Offer{ID: d.ID, Slots: d.Slots, NUMA: d.NUMA}, keys: d.Nodes, net: netState{moves: d.Moves, hardware: d.Hardware, held: d.Moves}}
			res.pending[d.ID] = true
		}
		if len(res.records) > 0 {
			s.resources = append(s.resources, res)
		}
	}
	return s
}
