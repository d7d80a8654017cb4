package inventory

import (
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// A node made shortly before the first scan is an event of its hardware; an old one,
// and one of a clock that was set back, are not.
func TestRecentNodes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name  string
		age   time.Duration
		known bool
	}{{"recent", recent / 2, true}, {"old", 2 * recent, false}, {"of the future", -recent, false}} {
		h := &device.Hardware{Path: "devices/a"}
		nodes := []*device.Node{{Path: "/dev/x", Hardware: h}, {Path: "/dev/older", Hardware: h}, {Path: "/dev/null"}}
		ids := map[string]nodeID{}
		for i, n := range nodes {
			ids[n.Path] = nodeID{changed: now.Add(-c.age - time.Duration(i)*recent/4).UnixNano()}
		}
		s := New(Options{Sysfs: t.TempDir()})
		s.addRecentNodes(nodes, ids, now)
		want := time.Time{}
		if c.known {
			want = now.Add(-c.age)
		}
		if got := s.LastEvent("devices/a"); !got.Equal(want) || len(s.events) > 1 {
			t.Errorf("%s: %v; want %v, of %v", c.name, got, want, s.events)
		}
	}
}
