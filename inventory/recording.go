package inventory

import (
	"context"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// RecordingMarker is the name of the file at the root of a recorded /dev.
//
// A recorded machine can be read by any user, also where mknod(2) is refused:
// below a directory with this file a regular file whose content is
// "char 188:0" or "block 8:0" (one line) stands for the node. Without the
// file, as on every real host, a regular file below /dev is never a node.
//
// Further down it says that another file system is mounted on its directory.
// A scan does not enter that, but links may lead there.
const RecordingMarker = ".generic-dp-recording"

// Reading is a snapshot and all that was read for it.
type Reading struct {
	Snapshot *device.Snapshot
	// Sysfs is what was read below /sys.
	Sysfs sysfs.Trace
	// Proc has of each file below /proc the lines that matter to the scan.
	Proc map[string]string
	// Links says by path what each link below /dev says that was seen,
	// wherever it leads.
	Links map[string]string
	// Mounts by path: directories below /dev on another file system.
	Mounts []string
}

// Read scans a host for a recording. Another scan that reads the same has the
// same snapshot, but for its problems: they are what could not be read.
//
// What also reads of attributes is in the recording, too; nil reads none.
func Read(ctx context.Context, o Options, also func(*device.Snapshot, *Attributes)) (*Reading, error) {
	s := New(o)
	traced, trace := s.sysfs.Trace()
	s.proc.kept = make(map[string]string)
	s.sysfs = traced
	c, err := s.scan(ctx, nil)
	// A recording can't be scanned again: what is being set up is waited for.
	for end := time.Now().Add(time.Second); err == nil && len(c.snapshot.Unread) > 0 && time.Now().Before(end); {
		select {
		case <-ctx.Done():
		case <-time.After(slowAfter):
		}
		c, err = s.scan(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	snap := c.snapshot
	// ghw reads by itself, and another scan may have to do without it.
	for _, h := range snap.Hardware {
		if h.PCI != nil {
			_, _ = traced.PCIModalias(h.Path)
			_, _ = traced.PCIFunction(h.Path)
		}
	}
	attrs := s.Attributes()
	for _, n := range snap.Nets {
		attrs.InUse(n)
	}
	for _, n := range snap.Nodes {
		if n.Type == device.CharNode && n.SysPath == "" {
			attrs.CharDriver(n.Major)
		}
	}
	if also != nil {
		also(snap, attrs)
	}
	snap.Problems = append(snap.Problems, attrs.Problems()...)
	slices.Sort(c.tree.mounts)
	return &Reading{Snapshot: snap, Sysfs: trace(), Proc: s.proc.kept, Links: c.tree.links, Mounts: c.tree.mounts}, nil
}
