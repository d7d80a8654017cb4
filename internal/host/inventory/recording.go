package inventory

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/sys/dirents"
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
	for end := time.Now().Add(time.Second); err == nil && len(c.snapshot.UnreadHardware) > 0 && time.Now().Before(end); {
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
	return &Reading{
		Snapshot: snap,
		Sysfs:    trace(),
		Proc:     s.proc.kept,
		Links:    c.tree.links,
		Mounts:   c.tree.mounts,
	}, nil
}

const (
	hostSysfs = "/sys"
	hostProc  = "/proc"
)

// procOf returns the /proc that belongs to a sysfs: this kernel's for this kernel's
// own, and the directory next to it for any other, such as that of a recorded machine.
func procOf(root string) string {
	if root == hostSysfs || dirents.FSType(root) == unix.SYSFS_MAGIC {
		return hostProc
	}
	return filepath.Join(filepath.Dir(filepath.Clean(root)), "proc")
}

// proc reads files below /proc with one record per line.
type proc struct {
	root string
	kept map[string]string // for a recording: used lines by file; nil does not record
}

// each calls use for every line of a file, which returns the part of the line that
// matters to the scan, as a line with the same meaning: the rest is left out of
// recordings. A missing file has no lines.
func (p proc) each(file string, use func(line []byte) (matters string)) error {
	f, err := os.Open(filepath.Join(p.root, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var kept strings.Builder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := use(lines.Bytes()); line != "" && p.kept != nil {
			kept.WriteString(line + "\n")
		}
	}
	if kept.Len() > 0 {
		p.kept[file] = kept.String()
	}
	return lines.Err()
}
