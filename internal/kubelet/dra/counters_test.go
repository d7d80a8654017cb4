package dra

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// at returns a device at places.
func at(id string, places ...string) Device {
	return Device{Resource: "example.com/r", ID: id, Slots: 1, Uses: holds.Device{Places: places, Exclusive: true}}
}

// allowsAll reports whether the scheduler can allocate these devices together
// (checkAvailableCounters in k8s.io/dynamic-resource-allocation/structured).
func allowsAll(t *testing.T, sets []counterSet, allocated []Device) bool {
	t.Helper()
	left := map[string]int{}
	for _, set := range sets {
		for name, c := range set.Counters {
			left[set.Name+"/"+name], _ = strconv.Atoi(c.Value)
		}
	}
	for _, d := range allocated {
		for _, c := range d.consumes {
			for name, amount := range c.Counters {
				key := c.CounterSet + "/" + name
				if _, exists := left[key]; !exists {
					t.Fatalf("%s consumes %s, which does not exist", d.ID, key)
				}
				n, _ := strconv.Atoi(amount.Value)
				left[key] -= n
			}
		}
	}
	return !slices.ContainsFunc(slices.Collect(maps.Values(left)), func(n int) bool { return n < 0 })
}

// For random devices, the counters allow exactly the sets of devices of which no two conflict.
func TestCountersAgreeWithConflict(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for range 3000 {
		var devices []Device
		for i := range random.IntN(7) + 1 {
			var places []string
			for range random.IntN(3) {
				places = append(places, randomPlace(random))
			}
			devices = append(devices, at(fmt.Sprint("d", i), places...))
		}
		devices = sorted(devices)
		sets, left := addCounters(devices)
		if len(left) > 0 {
			t.Fatalf("left out: %v", left)
		}
		for chosen := range 1 << len(devices) {
			var allocated []Device
			conflicts := false
			for i, d := range devices {
				if chosen>>i&1 == 0 {
					continue
				}
				for _, other := range allocated {
					conflicts = conflicts || device.Conflict(d.Uses.Places, other.Uses.Places)
				}
				allocated = append(allocated, d)
			}
			if allowsAll(t, sets, allocated) == conflicts {
				t.Fatalf("%+v can be allocated together (%v), with the counters %+v", allocated, !conflicts, sets)
			}
		}
	}
}

// randomPlace returns a place in a small tree.
func randomPlace(random *rand.Rand) string {
	var parts []string
	for range random.IntN(4) + 1 {
		parts = append(parts, string(rune('a'+random.IntN(2))))
	}
	return strings.Join(parts, "/")
}

// Devices that need more counters than the API server allows are not published.
func TestTooManyCounters(t *testing.T) {
	t.Parallel()
	var devices []Device
	for i := range maxCounters + 2 {
		devices = append(devices, at(fmt.Sprintf("d%02d", i), strings.Repeat("/hub", i+1)[1:]))
	}
	devices = append(devices, at("free", "elsewhere"))
	devices = sorted(devices)
	sets, left := addCounters(devices)
	if len(sets) > 0 || len(left) != maxCounters+2 || left["free"] != "" {
		t.Fatalf("%d sets, left out: %v", len(sets), left)
	}
	n := newNodeSlices(nil, testNode)
	accepted, refused := n.accepted(devices, left, time.Now())
	if len(accepted) != 1 || accepted[0].ID != "free" || len(refused) != len(left) {
		t.Errorf("accepted are %v, refused %v", accepted, refused)
	}
}

// The slices of exclusive devices, which the types and rules of Kubernetes accept
// (test/e2e/resourceapi).
func TestSlicesOfCountersAreGolden(t *testing.T) {
	t.Parallel()
	n := newNodeSlices(nil, "node-1")
	n.uid = "6b3f1e2a-0000-4000-8000-000000000001"
	hub := at("hub", "usb1/1-2", "usb:2109:2813:HUB")
	hub.Slots = 2
	devices := sorted([]Device{hub, at("one", "usb1/1-2/1-2.1"), at("two", "usb1/1-2/1-2.2")})
	sets, _ := addCounters(devices)
	specs, _ := n.specs(devices, sets, time.Now())
	for i, name := range []string{"exclusive.json", "counters.json"} {
		text, err := json.MarshalIndent(n.object(i, specs[i]), "", "  ")
		must(t, err)
		golden(t, name, append(text, '\n'))
	}
}
