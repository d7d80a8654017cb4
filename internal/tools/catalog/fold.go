package catalog

import "slices"

// Folded is one line of a short list: a device, and how many others are like it.
type Folded struct {
	Device
	// More is the number of further devices that only differ in their place.
	More int
}

// Fold shortens a list for people. The parts of a chipset, of which a server has hundreds,
// are one line for each model. Entries that no resource can have, such as the memory and the
// terminals of the host, are left out; hidden is the number of their nodes and interfaces.
func Fold(list []Device) (short []Folded, hidden int) {
	models := map[model]int{} // positions in short
	for _, d := range list {
		if d.Bus == "" && (d.Refused || d.InUse != "") {
			hidden += len(d.Nodes) + len(d.Interfaces)
			continue
		}
		if !isPartOfChipset(d) {
			short = append(short, Folded{Device: d})
			continue
		}
		key := model{bus: d.Bus, id: d.ID, class: d.Class, driver: d.Driver}
		at, isKnown := models[key]
		if !isKnown {
			models[key] = len(short)
			short = append(short, Folded{Device: d})
			continue
		}
		first := &short[at]
		first.More++
		// NUMA nodes do not distinguish lines. Clip makes union copy the list, which the first device
		// still shares with the argument of Fold.
		first.NUMA = union(slices.Clip(first.NUMA), d.NUMA...)
	}
	return short, hidden
}

// model is what devices of one line have in common.
type model struct{ bus, id, class, driver string }

// chipset are the kinds of devices that a chipset consists of; the last one is unknown.
var chipset = []string{"bridge", "bus controller", "communication", "memory", "system", ""}

// isPartOfChipset reports whether a PCI function belongs to the chipset, and has nothing
// that a pod could get.
func isPartOfChipset(d Device) bool {
	isEmpty := len(d.Nodes) == 0 && len(d.Interfaces) == 0 && len(d.Offers) == 0
	return d.Bus == "pci" && isEmpty && slices.Contains(chipset, d.Kind)
}
