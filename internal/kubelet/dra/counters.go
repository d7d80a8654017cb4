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
	rivals := rivalsOf(len(devices), shared)
	left = map[string]string{}
	for _, first := range slices.Sorted(maps.Keys(rivals)) {
		places := rivals[first]
		if len(places) > maxCounters {
			for _, place := range places {
				for i := range place.consumed {
					left[devices[i].ID] = fmt.Sprintf("the devices that exclude each other need %d counters, and the API server allows %d: offer fewer of them, or use api = \"device-plugin\"",
						len(places), maxCounters)
				}
			}
			continue
		}
		// The name of a device is a DNS label that no other set has.
		set := counterSet{
			Name:     devices[first].name,
			Counters: map[string]counter{},
		}
		for n, place := range places {
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

// rivalsOf returns the shared places of the devices that share places, directly or by others, by the index of
// the first of these devices. n is the number of all devices.
func rivalsOf(n int, shared []sharedPlace) map[int][]sharedPlace {
	// Each device has an earlier one of its group, and the first one itself.
	earlier := make([]int, n)
	for i := range earlier {
		earlier[i] = i
	}
	firstOf := func(i int) int {
		for earlier[i] != i {
			i = earlier[i]
		}
		return i
	}
	for _, place := range shared {
		members := slices.Collect(maps.Keys(place.consumed))
		for _, i := range members {
			a := firstOf(members[0])
			b := firstOf(i)
			earlier[max(a, b)] = min(a, b)
		}
	}
	rivals := map[int][]sharedPlace{}
	for _, place := range shared {
		for i := range place.consumed {
			first := firstOf(i)
			rivals[first] = append(rivals[first], place)
			break
		}
	}
	return rivals
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
	for i := range devices {
		for _, place := range devices[i].exclusivePlaces() {
			for whole := place; whole != ""; whole = device.WholeOf(whole) {
				if at[whole] != nil {
					at[whole][i] = 1
				}
			}
		}
	}
	for i := range devices {
		for _, place := range devices[i].exclusivePlaces() {
			at[place][i] = len(at[place])
		}
	}
	var shared []sharedPlace
	isKnown := map[string]bool{}
	for _, place := range slices.Sorted(maps.Keys(at)) {
		key := fmt.Sprint(at[place]) // maps are printed in the order of their keys
		if len(at[place]) > 1 && !isKnown[key] {
			isKnown[key] = true
			shared = append(shared, sharedPlace{place, at[place]})
		}
	}
	return shared
}
