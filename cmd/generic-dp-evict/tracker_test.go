package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const after = 30 * time.Second

// simulation runs a tracker by a clock of its own.
type simulation struct {
	*tracker
	now     time.Time
	evicted []string
}

func newSimulation(perMinute int) *simulation {
	return &simulation{tracker: newTracker(after, perMinute, time.Second), now: time.Unix(1_000_000, 0)}
}

func (s *simulation) set(name string, devices ...string) {
	var unhealthy []device
	for _, d := range devices {
		unhealthy = append(unhealthy, device{"node", "example.com/zigbee", d})
	}
	s.tracker.set(s.now, &pod{namespace: "d", name: name, uid: name}, unhealthy)
}

// forward advances the clock, and evicts what is due on the way as Run does.
func (s *simulation) forward(by time.Duration) {
	for end := s.now.Add(by); ; {
		p, wake := s.next(s.now)
		switch {
		case p != nil:
			s.succeeded(s.now, p)
			s.evicted = append(s.evicted, p.name)
		case wake.IsZero() || wake.After(end):
			s.now = end
			return
		default:
			s.now = wake
		}
	}
}

func (s *simulation) want(t *testing.T, when string, pods ...string) {
	t.Helper()
	if !slices.Equal(s.evicted, pods) {
		t.Errorf("%s: evicted %v, want %v", when, s.evicted, pods)
	}
}

func TestAPodIsEvictedAfterAWhile(t *testing.T) {
	t.Parallel()
	s := newSimulation(10)
	s.set("a", "x")
	s.forward(after - time.Second)
	s.set("a", "x", "y") // the first goes on
	s.want(t, "before")
	s.forward(time.Second)
	s.want(t, "then", "a")
	s.set("a", "x", "y") // it is terminating
	s.forward(time.Hour)
	s.want(t, "later", "a")
}

// However a device flaps, it evicts no two pods within the cooldown.
func TestAFlappingDevice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		down, up time.Duration
		most     int
	}{
		{3 * time.Second, 3 * time.Second, 0},
		{29 * time.Second, time.Second, 0},
		{31 * time.Second, time.Second, 6},
		{5 * time.Minute, time.Second, 6},
	} {
		s := newSimulation(100)
		start := s.now
		for i := 0; s.now.Sub(start) < time.Hour; i++ {
			name := fmt.Sprint("pod-", len(s.evicted)) // its successor has the same device
			s.set(name, "x")
			s.forward(tc.down)
			s.set(name)
			s.forward(tc.up)
		}
		if n := len(s.evicted); n > tc.most || tc.most > 0 && n == 0 {
			t.Errorf("%s away, %s there: %d evictions in an hour, want at most %d", tc.down, tc.up, n, tc.most)
		}
	}
}

func TestEvictionsInAMinute(t *testing.T) {
	t.Parallel()
	s := newSimulation(3)
	for i := range 10 {
		s.set(fmt.Sprint(i), fmt.Sprint(i))
	}
	s.forward(after)
	for minute, want := range []int{3, 6, 9, 10} {
		if n := len(s.evicted); n != want {
			t.Errorf("after %d minutes %d pods are evicted, want %d", minute, n, want)
		}
		s.forward(time.Minute)
	}
}

// What can't be evicted is tried again, ever more slowly, as long as there is a reason.
func TestAFailedEvictionIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := newSimulation(10)
	s.set("a", "x")
	tries := 0
	for start := s.now; s.now.Sub(start) < time.Hour; {
		p, wake := s.next(s.now)
		if p == nil {
			s.now = wake
			continue
		}
		s.failed(s.now, p)
		tries++
		s.set("a", "x") // any change of its status
	}
	if tries < 15 || tries > 20 {
		t.Errorf("%d tries in an hour, want one every five minutes after the first", tries)
	}
	s.set("a")
	if p, wake := s.next(s.now.Add(time.Hour)); p != nil || !wake.IsZero() {
		t.Errorf("a pod whose device is back is evicted: %v, %v", p, wake)
	}
}

// The order in which the kubelet lists devices does not matter, and the number that is remembered is
// limited.
func TestFirstDevicesAreKept(t *testing.T) {
	t.Parallel()
	const status = `{"resourceID": "%05d", "health": "Unhealthy"}`
	var listed []string
	for i := range 22_000 {
		listed = append(listed, fmt.Sprintf(status, (i*7919)%22_000))
	}
	listed = append(listed, fmt.Sprintf(status, 0))
	text := `{"status": {"containerStatuses": [{"allocatedResourcesStatus": [{"name": "example.com/zigbee", "resources": [` + strings.Join(listed, ",") + `]}]}]}}`
	var o podObject
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	devices, _ := o.unhealthy()
	s := newSimulation(10)
	p := &pod{uid: "a"}
	s.tracker.set(s.now, p, devices)
	if len(p.unhealthy) != maxDevices || p.total != 22_000 {
		t.Fatalf("%d devices of %d, want %d of 22000", len(p.unhealthy), p.total, maxDevices)
	}
	got := p.names()
	if want := "example.com/zigbee 00007 and 21992 more"; !strings.HasSuffix(got, want) || len(got) > 300 {
		t.Errorf("names: %q, want them to end with %q", got, want)
	}
}
