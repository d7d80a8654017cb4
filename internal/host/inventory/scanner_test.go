package inventory

import (
	"os"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// A node without its number in sysfs is kept only if it still exists: the kernel
// removes a node before its number.
func TestNodeRemovedDuringAScanIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, still := range []bool{true, false} {
		dev := t.TempDir()
		if still {
			must(t, os.WriteFile(dev+"/ttyUSB1", []byte("char 188:1\n"), 0o644))
		}
		c := &scan{sysfs: sysfs.New(t.TempDir()), tree: &devTree{root: dev, recording: true}}
		n := &node{Node: device.Node{Path: "/dev/ttyUSB1", Type: device.CharNode, Major: 188, Minor: 1}}
		kept := c.locate([]*node{n})
		if got := len(kept) == 1; got != still {
			t.Errorf("still there %t: kept %t", still, got)
		}
	}
}

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
		var nodes []*node
		for i, h := range []*device.Hardware{h, h, nil} {
			made := now.Add(-c.age - time.Duration(i)*recent/4)
			nodes = append(nodes, &node{Node: device.Node{Hardware: h}, changed: made})
		}
		s := New(Options{Sysfs: t.TempDir()})
		s.addRecentNodes(nodes, now)
		want := time.Time{}
		if c.known {
			want = now.Add(-c.age)
		}
		if got := s.Events()["devices/a"]; !got.Equal(want) || len(s.events) > 1 {
			t.Errorf("%s: %v; want %v, of %v", c.name, got, want, s.events)
		}
	}
}
