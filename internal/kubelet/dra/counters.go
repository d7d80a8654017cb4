package dra

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The limits of the API (ResourceSliceMaxCounterSets and ResourceSliceMaxCountersPerCounterSet in
// k8s.io/api/resource/v1).
const (
	maxCounterSets = 8
	maxCounters    = 32
)

// counterSet has counters that devices share.
type counterSet struct {
	Name     string             `json:"name"`
	Counters map[string]counter `json:"counters"`
}

// counter is an amount: all of a counter, or what a device consumes of it.
type counter struct {
	Value string `json:"value"`
}

// consumption is what a device consumes of a counter set.
type consumption struct {
	CounterSet string             `json:"counterSet"`
	Counters   map[string]counter `json:"counters"`
}

// sharedPlace is a place of an exclusive device at which, or below which, there are other exclusive
// devices. It has one counter, whose value is the number of these devices. A device at the place
// consumes all of it, and a device below it consumes 1. So the scheduler either allocates one device
// at the place, or any number of devices below it.
type sharedPlace struct {
	place string
	// consumed is what each device consumes, by its index in the list of devices.
	consumed map[int]int
}

// addCounters sets the consumption of exclusive devices, which are sorted by name, and returns the
// counter sets. Devices that conflict directly or by others have one set. left has the devices that
// cannot be published, with the reason, by ID.
func addCounters(devices []Device) (sets []counterSet, left map[string]string) {
	shared := sharedPlaces(devices)
	left = map[string]string{}
	for _, group := range connected(devices, shared) {
		if len(group.places) > maxCounters {
			for _, i := range group.devices {
				left[devices[i].ID] = fmt.Sprintf("the devices that exclude each other need %d counters, and the API server allows %d: offer fewer of them, or use api = \"device-plugin\"",
					len(group.places), maxCounters)
			}
			continue
		}
		// The name of a device is a DNS label that no other set has.
		set := counterSet{
			Name:     devices[group.devices[0]].name,
			Counters: map[string]counter{},
		}
		for n, place := range group.places {
			name := "c" + strconv.Itoa(n)
			set.Counters[name] = counter{strconv.Itoa(len(place.consumed))}
			for i, amount := range place.consumed {
				devices[i].consume(set.Name, name, amount)
			}
		}
		sets = append(sets, set)
	}
	return sets, left
}

// consume adds what the device consumes of a counter. All its counters are in one set.
func (d *Device) consume(set, name string, amount int) {
	if d.consumes == nil {
		d.consumes = []consumption{{CounterSet: set, Counters: map[string]counter{}}}
	}
	d.consumes[0].Counters[name] = counter{strconv.Itoa(amount)}
}

// exclusivePlaces are the places of an exclusive device in the tree of parts.
func (d *Device) exclusivePlaces() []string {
	if !d.Uses.Exclusive {
		return nil
	}
	var places []string
	for _, place := range d.Uses.Places {
		places = append(places, device.TreePlace(place))
	}
	return places
}

// sharedPlaces returns the shared places of devices, sorted. Of several places that the same devices
// share in the same way, it returns one.
func sharedPlaces(devices []Device) []sharedPlace {
	at := map[string]map[int]int{}
	for i := range devices {
		for _, place := range devices[i].exclusivePlaces() {
			at[place] = map[int]int{}
		}
	}
	isAt := map[string]map[int]bool{}
	for i := range devices {
		for _, place := range devices[i].exclusivePlaces() {
			if isAt[place] == nil {
				isAt[place] = map[int]bool{}
			}
			isAt[place][i] = true
			for whole := place; whole != ""; whole = device.WholeOf(whole) {
				if at[whole] != nil {
					at[whole][i] = 1
				}
			}
		}
	}
	var shared []sharedPlace
	isKnown := map[string]bool{}
	for _, place := range slices.Sorted(maps.Keys(at)) {
		consumed := at[place]
		if len(consumed) < 2 {
			continue
		}
		for i := range isAt[place] {
			consumed[i] = len(consumed)
		}
		key := fmt.Sprint(consumed) // maps are printed in the order of their keys
		if !isKnown[key] {
			isKnown[key] = true
			shared = append(shared, sharedPlace{place, consumed})
		}
	}
	return shared
}

// rivalGroup are devices that share places, directly or by others.
type rivalGroup struct {
	// devices are indexes, sorted.
	devices []int
	// places are sorted.
	places []sharedPlace
}

// connected returns the groups of devices that share places, in the order of their first devices.
func connected(devices []Device, shared []sharedPlace) []rivalGroup {
	// parent leads from a device to the first device of its group.
	parent := map[int]int{}
	first := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	for _, place := range shared {
		members := slices.Sorted(maps.Keys(place.consumed))
		for _, i := range members {
			if _, isKnown := parent[i]; !isKnown {
				parent[i] = i
			}
		}
		for _, i := range members[1:] {
			a := first(members[0])
			b := first(i)
			parent[max(a, b)] = min(a, b)
		}
	}
	groups := map[int]*rivalGroup{}
	for _, i := range slices.Sorted(maps.Keys(parent)) {
		root := first(i)
		if groups[root] == nil {
			groups[root] = &rivalGroup{}
		}
		groups[root].devices = append(groups[root].devices, i)
	}
	for _, place := range shared {
		for i := range place.consumed {
			group := groups[first(i)]
			group.places = append(group.places, place)
			break // all of them are in one group
		}
	}
	var out []rivalGroup
	for _, root := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, *groups[root])
	}
	return out
}
