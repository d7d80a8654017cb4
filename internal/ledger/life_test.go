package ledger

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// life plays random stories: three resources, five devices, containers that start and
// end, restarts. Every step checks invariants against the previous output.
type life struct {
	t      *testing.T
	state  State
	now    time.Time
	start  time.Time
	config []Resource           // with offers
	held   map[string]string    // slot ID to resource
	known  bool                 // whether the holders are known
	events map[string]time.Time // by hardware
	pulled bool                 // the hardware of interfaces is removed
	// shown are the slots of the last output, by resource and slot, and since when each
	// has been Unhealthy; zero while it is Healthy.
	shown map[[2]string]time.Time
	out   Output
}

var lifeNames = []string{"a", "b", "c"}

func newLife(t *testing.T) *life {
	l := &life{t: t, now: boot, start: boot, held: map[string]string{}, known: true, events: map[string]time.Time{}, shown: map[[2]string]time.Time{}}
	for _, name := range lifeNames {
		l.config = append(l.config, Resource{Name: name})
	}
	return l
}

// play takes one step for each pair of bytes.
func (l *life) play(story []byte) {
	for len(story) >= 2 {
		l.act(story[0], int(story[1]))
		l.step()
		story = story[2:]
	}
	l.end()
}

func (l *life) act(op byte, arg int) {
	r := &l.config[arg%len(l.config)]
	id := fmt.Sprintf("d%d", arg/3%5)
	at := slices.IndexFunc(r.Offers, func(o device.Offer) bool { return o.ID == id })
	// Offers are replaced, never changed: the state keeps them.
	offers := slices.Clone(r.Offers)
	switch op % 12 {
	case 0, 1, 2: // plug or unplug
		switch {
		case at >= 0:
			r.Offers = slices.Delete(offers, at, at+1)
		case id == "d4":
			r.Offers = append(offers, iface(id, []string{"", "devices/d4"}[arg%2]))
		default:
			r.Offers = append(offers, slots(dev(id, []string{"a", "b"}[:1+arg%2]...), 1+arg%4))
		}
		// The last two devices are nodes of the same hardware.
		if at < 0 && id >= "d3" {
			r.Offers[len(r.Offers)-1].Places = []string{device.NodePlace("devices/d", id)}
		}
	case 3: // another count, other nodes
		if at >= 0 && id != "d4" {
			offers[at] = slots(dev(id, []string{"a", "b", "c"}[:arg/64]...), 1+arg/16%4)
			r.Offers = offers
		}
	case 4, 5: // a container starts
		var free []string
		for slot, since := range l.shown {
			if _, taken := l.held[slot[1]]; since.IsZero() && !taken {
				free = append(free, slot[0]+" "+slot[1])
			}
		}
		if slices.Sort(free); len(free) > 0 {
			name, slot := free[arg%len(free)][:1], free[arg%len(free)][2:]
			l.held[slot] = name
		}
	case 6: // a container ends
		for _, slot := range slices.Sorted(maps.Keys(l.held)) {
			if arg%2 == 0 {
				delete(l.held, slot)
			}
			arg /= 2
		}
	case 7:
		l.known, l.pulled = arg%4 != 0, arg%16 == 3
	case 8:
		l.events["devices/"+id] = l.now
	case 9:
		r.Refuse = []string{"", "retiring"}[arg/3%2]
	case 10: // the order of the configuration
		slices.Reverse(l.config)
	case 11: // restart
		text, err := json.Marshal(l.state.Remember())
		if err != nil {
			l.t.Fatal(err)
		}
		var kept []Remembered
		if err := json.Unmarshal(text, &kept); err != nil {
			l.t.Fatal(err)
		}
		l.state, l.start = Persisted{Boot: "a", Resources: kept}.State([]string{"a", "b"}[arg%2]), l.now
	}
	steps := []time.Duration{0, 10 * ms, 300 * ms, 6 * s, 30 * s, m, 2 * m, 6 * m}
	l.now = l.now.Add(steps[arg/8%len(steps)])
}

// hardware is the hardware of the host, none if it is pulled.
func (l *life) hardware() []*device.Hardware {
	if l.pulled {
		return nil
	}
	var present []*device.Hardware
	for id := 'a'; id <= 'z'; id++ {
		present = append(present, &device.Hardware{Path: "devices/" + string(id)})
	}
	return present
}

// step calls Next and checks invariants.
func (l *life) step() {
	l.t.Helper()
	in := Input{
		Now: l.now, Start: l.start, Events: l.events, Hardware: l.hardware(), Node: func(string) *device.Node { return nil }, Exists: func(string) bool { return false },
	}
	for _, r := range l.config {
		// A resource with this reason is removed from the configuration.
		if r.Refuse == "" || r.Name != "c" {
			in.Resources = append(in.Resources, r)
		}
	}
	in.Held = heldOf(false, l.held)
	if !l.known {
		in.Held = Held{IsUnknown: true}
	}
	l.state, l.out = l.state.Next(in)

	shown := make(map[[2]string]time.Time)
	owner := make(map[string]string)
	for _, res := range l.out.Resources {
		for _, e := range res.Devices {
			switch offered := l.offered(res.Name, e.Offer.ID); {
			case e.Healthy && !offered && !e.Offer.NetsInContainer:
				l.t.Errorf("%s of %s is Healthy, but not there", e.Offer.ID, res.Name)
			case e.Offer.NetsInContainer && (offered || !e.Healthy || !e.Present):
				l.t.Errorf("%s of %s is in a container: offered %t, healthy %t, present %t", e.Offer.ID, res.Name, offered, e.Healthy, e.Present)
			case e.Offer.NetsInContainer && l.known && l.held[e.Offer.ID] != res.Name:
				l.t.Errorf("%s of %s is in a container that does not hold it", e.Offer.ID, res.Name)
			}
			if strings.HasPrefix(e.Reason, reasonRenamed) {
				l.t.Errorf("%s of %s is %s, which is another device", e.Offer.ID, res.Name, e.Reason)
			}
			if e.Healthy == (e.Reason != "") {
				l.t.Errorf("%s of %s: healthy %t for the reason %q", e.Offer.ID, res.Name, e.Healthy, e.Reason)
			}
			for _, slot := range Slots(e) {
				if other, ok := owner[slot.ID]; ok {
					l.t.Errorf("%s is listed by %s and %s", slot.ID, other, res.Name)
				}
				owner[slot.ID] = res.Name
				key := [2]string{res.Name, slot.ID}
				since := l.now
				if before, ok := l.shown[key]; ok && !before.IsZero() {
					since = before
				}
				if slot.Healthy {
					since = time.Time{}
				}
				shown[key] = since
			}
		}
	}
	for key, since := range l.shown {
		if _, ok := shown[key]; ok {
			continue
		}
		if since.IsZero() || l.now.Sub(since) < time.Minute {
			l.t.Errorf("%s of %s left the list without a minute of being Unhealthy", key[1], key[0])
		}
		if l.held[key[1]] == key[0] || !l.known {
			l.t.Errorf("%s of %s left the list while it was held or nobody knew", key[1], key[0])
		}
	}
	for slot, name := range l.held {
		if owner[slot] != name {
			l.t.Errorf("%s is held through %s, but listed by %q", slot, name, owner[slot])
		}
	}
	if !l.out.Wake.IsZero() && !l.out.Wake.After(l.now) {
		l.t.Error("wakes without an end")
	}
	l.shown = shown
}

func (l *life) offered(name, id string) bool {
	return slices.ContainsFunc(l.config, func(r Resource) bool {
		return r.Name == name && r.Refuse == "" && slices.ContainsFunc(r.Offers, func(o device.Offer) bool { return o.ID == id })
	})
}

// end releases all containers and follows the wakes: then exactly the present devices
// must be listed, all of them Healthy.
func (l *life) end() {
	l.t.Helper()
	l.held, l.known = map[string]string{}, true
	l.step()
	for range 100 {
		if l.out.Wake.IsZero() {
			break
		}
		l.now = l.out.Wake
		l.step()
	}
	want := make(map[string]bool)
	for _, r := range l.config {
		for _, o := range r.Offers {
			if r.Refuse == "" {
				for k := range o.Slots {
					want[device.SlotID(o.ID, k)] = true
				}
			}
		}
	}
	got := make(map[string]bool)
	for key, since := range l.shown {
		// A device of two resources stays with the one that had it first, with that
		// one's number of slots.
		if base, _ := device.SplitSlot(key[1]); !l.offered(key[0], base) || !since.IsZero() {
			l.t.Errorf("in the end %s of %s is listed", key[1], key[0])
		}
		got[key[1]] = true
	}
	for slot := range want {
		if base, k := device.SplitSlot(slot); k == 0 && !got[base] {
			l.t.Errorf("in the end %s is not listed", slot)
		}
	}
	if !l.out.Wake.IsZero() || l.out.AwaitsHolders {
		l.t.Errorf("in the end it still waits: wake %s, awaits %t", l.out.Wake, l.out.AwaitsHolders)
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		story := make([]byte, 2*random.IntN(100))
		for i := range story {
			story[i] = byte(random.Uint32())
		}
		newLife(t).play(story)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzLife(f *testing.F) {
	f.Add([]byte{0, 0, 4, 0, 9, 3, 6, 255, 7, 0})
	f.Add([]byte{0, 2, 0, 5, 4, 60, 9, 5, 0, 0, 11, 63})
	f.Fuzz(func(t *testing.T, story []byte) {
		newLife(t).play(story[:min(len(story), 400)])
	})
}
