package inventory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// RecordingMarker is the name of the file at the root of a recorded /dev.
//
// A recorded machine can be read by any user, also where mknod(2) is denied: below a
// directory with this file a regular file whose content is "char 188:0" or "block 8:0"
// (one line) stands for the node. Without the marker, as on every real host, a regular
// file below /dev is never a node.
//
// In a subdirectory it marks the mount point of another file system. A scan does not
// enter that, but links may point there.
const RecordingMarker = ".generic-dp-recording"

// Reading is a snapshot and all reads of its scan.
type Reading struct {
	Snapshot *device.Snapshot
	// Sysfs are the reads below /sys.
	Sysfs sysfs.Trace
	// Proc are the lines of each file below /proc that matter to the scan.
	Proc map[string]string
	// Links are the unresolved targets of all links below /dev, by path.
	Links map[string]string
	// Mounts by path: directories below /dev on another file system.
	Mounts []string
}

// Read scans a host for a recording. A scan of the same reads has the same snapshot,
// except for its problems, the failed reads.
//
// The reads of also are recorded too; nil reads nothing.
func Read(ctx context.Context, o Options, also func(*device.Snapshot, *Attributes)) (*Reading, error) {
	s := New(o)
	traced, trace := s.sysfs.Trace()
	s.proc.kept = make(map[string]string)
	s.sysfs = traced
	c, err := s.scan(ctx)
	// A recording can't be scanned again: unread devices are awaited.
	for end := time.Now().Add(time.Second); err == nil && len(c.snapshot.Unread) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
		case <-time.After(slowAfter):
		}
		s.cache = nil
		c, err = s.scan(ctx)
	}
	if err != nil {
		return nil, err
	}
	snap := c.snapshot
	attrs := s.Attributes()
	for _, n := range snap.Nets {
		attrs.InUse(n)
	}
	for _, n := range snap.Nodes {
		if n.Type == device.CharNode && n.SysPath == "" {
			attrs.CharDriver(n.Major)
		}
		// A match asks for the driver of any device from the node up to its hardware.
		for dir := n.SysPath; n.Hardware != nil && strings.HasPrefix(dir, n.Hardware.Path); dir = up(dir) {
			attrs.Driver(dir)
		}
	}
	if also != nil {
		also(snap, attrs)
	}
	snap.Problems = append(snap.Problems, attrs.Problems()...)
	slices.Sort(c.tree.mounts)
	return &Reading{Snapshot: snap, Sysfs: trace(), Proc: s.proc.kept, Links: c.tree.links, Mounts: c.tree.mounts}, nil
}
