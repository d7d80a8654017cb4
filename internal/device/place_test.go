package device_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

func TestConflict(t *testing.T) {
	t.Parallel()
	const hub = "devices/pci0000:00/0000:00:14.0/usb1/1-2"
	for _, c := range []struct {
		a, b []string
		want bool
	}{
		{[]string{hub}, []string{hub}, true},
		{[]string{hub}, []string{hub + "/1-2.1"}, true},
		{[]string{hub + "/1-2.1/1-2.1.4"}, []string{hub}, true},
		{[]string{hub + "/1-2.1"}, []string{hub + "/1-2.2"}, false},
		{[]string{hub}, []string{hub + "0"}, false}, // the port beside it
		{[]string{hub}, []string{"group 2", hub + "/if00:ttyUSB"}, true},
		{[]string{"group 2"}, []string{"group 21"}, false},
		{nil, []string{hub}, false},
	} {
		if got := device.Conflict(c.a, c.b); got != c.want {
			t.Errorf("Conflict(%q, %q) = %v", c.a, c.b, got)
		}
		if got := device.Conflict(c.b, c.a); got != c.want {
			t.Errorf("Conflict(%q, %q) = %v", c.b, c.a, got)
		}
	}
}

// The index of places agrees with the plain definition, for random trees.
func TestPlacesAgreeWithConflict(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		places := map[string][]string{}
		var ids []string
		for i := range random.IntN(8) {
			id := fmt.Sprint("id", i)
			ids = append(ids, id)
			places[id] = randomPlaces(random)
		}
		var index device.Places
		for _, id := range ids {
			index.Add(id, places[id])
		}
		for _, id := range append(ids, "other") {
			own := places[id]
			if id == "other" {
				own = randomPlaces(random)
			}
			rivals := map[string]bool{}
			for _, other := range ids {
				if other != id && device.Conflict(own, places[other]) {
					rivals[other] = true
				}
			}
			got := index.Rival(id, own)
			isRight := rivals[got] || got == "" && len(rivals) == 0
			if !isRight {
				t.Fatalf("Rival(%s, %q) = %q of %v, want one of %v", id, own, got, places, rivals)
			}
		}
	}
}

// randomPlaces returns up to three places in a small tree.
func randomPlaces(random *rand.Rand) []string {
	var places []string
	for range random.IntN(3) + 1 {
		var parts []string
		for range random.IntN(4) + 1 {
			parts = append(parts, string(rune('a'+random.IntN(2))))
		}
		places = append(places, strings.Join(parts, "/"))
	}
	return places
}
