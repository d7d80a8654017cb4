package inventory

import (
	"os"
	"slices"
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
		c := &scan{sysfs: sysfs.New(t.TempDir()), cache: newCache(), tree: &devTree{root: dev, recording: true}}
		c.tree.nodes = make(map[string]*node)
		c.tree.addNode(&devNode{path: "/dev/ttyUSB1", kind: device.CharNode, major: 188, minor: 1})
		kept := c.locate(c.tree.sortedNodes())
		if got := len(kept) == 1; got != still {
			t.Errorf("still there %t: kept %t", still, got)
		}
	}
}

func TestSCSIAddress(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]int{
		"0:0:0:0": {0, 0}, "6:0:1:2": {1, 2}, "12:2:999:999": {999, 999},
	} {
		if target, lun, ok := scsiAddress(name); !ok || [2]int{target, lun} != want {
			t.Errorf("scsiAddress(%q) = %d, %d, %v; want %v", name, target, lun, ok, want)
		}
	}
	for _, name := range []string{"", "host0", "target0:0:0", "0:0:0", "0:0:0:0:0", "0:0:0:x", "0:0:1000:0", "0:0:0:16385", "0:0:99999999999999999999:0", "0003:046D:C31C.0001", "0000:05:00.0:0.0"} {
		if target, lun, ok := scsiAddress(name); ok {
			t.Errorf("scsiAddress(%q) = %d, %d; want none", name, target, lun)
		}
	}
}

// The results for the predecessor of a new device on a bus, and of one that moved, are
// dropped; without inodes every device is new.
func TestDevicesOnABus(t *testing.T) {
	t.Parallel()
	c := &scan{cache: newCache()}
	a, b := sysfs.Entry{Name: "a", Path: "devices/a", Ino: 1}, sysfs.Entry{Name: "b", Path: "devices/b", Ino: 2}
	anew, moved, anyone := a, b, a
	anew.Ino, moved.Path, anyone.Ino = 3, "devices/c", 0
	for i, step := range []struct {
		list    []sysfs.Entry
		dropped []string
	}{
		{[]sysfs.Entry{a, b}, []string{"devices/a/x", "devices/b"}},
		{[]sysfs.Entry{a, b}, nil},
		{[]sysfs.Entry{anew, b}, []string{"devices/a/x"}},
		{[]sysfs.Entry{anew, moved}, []string{"devices/c"}},
		{[]sysfs.Entry{anew}, nil},
		{[]sysfs.Entry{anew, b}, []string{"devices/b"}},
		{[]sysfs.Entry{anyone}, []string{"devices/a/x"}},
		{[]sysfs.Entry{anyone}, []string{"devices/a/x"}},
	} {
		dirs := []string{"devices/a/x", "devices/b", "devices/c"}
		for _, dir := range dirs {
			c.cache.of(dir)
		}
		c.onBus(device.USBBus, func(map[string]sysfs.Entry) ([]sysfs.Entry, error) { return step.list, nil })
		dropped := slices.DeleteFunc(dirs, func(dir string) bool { return c.cache.facts[dir] != nil })
		if !slices.Equal(dropped, step.dropped) {
			t.Errorf("step %d: dropped %q; want %q", i, dropped, step.dropped)
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
			made := now.Add(-c.age - time.Duration(i)*recent/4).UnixNano()
			nodes = append(nodes, &node{Node: device.Node{Hardware: h}, read: &devNode{changed: made}})
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
