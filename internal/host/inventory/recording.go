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

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// RecordingMarker is the name of the file at the root of a recorded /dev.
//
// Any user can read a recorded machine, even where mknod(2) is denied. Below a directory with this
// file, a regular file stands for a node if its content is a line such as "char 188:0" or "block
// 8:0". Without the marker, as on every real host, a regular file below /dev is never a node.
//
// In a subdirectory the file marks the mount point of another file system. A scan does not enter
// the mount point, but links may point there.
const RecordingMarker = ".generic-dp-recording"

// Reading is a snapshot and all reads of its scan.
type Reading struct {
	Snapshot *device.Snapshot
	// Sysfs are the reads below /sys.
	Sysfs sysfs.Trace
	// Proc are the lines of each file below /proc that affect the scan.
	Proc map[string]string
	// Links are the unresolved targets of all links below /dev, by path.
	Links map[string]string
	// Mounts by path: directories below /dev on another file system.
	Mounts []string
}

// Read scans a host for a recording. A scan of the recorded reads has the same snapshot,
// except for its problems, which are failed reads.
//
// The reads of also are recorded as well. It may be nil.
func Read(ctx context.Context, o Options, also func(*device.Snapshot, *Attributes)) (*Reading, error) {
	s := New(o)
	traced, trace := s.sysfs.Trace()
	// From here on, every read is traced: first the scan, then everything that a match may read.
	s.proc.recorded = make(map[string]string)
	s.sysfs = traced
	c, err := s.scanUntilRead(ctx)
	if err != nil {
		return nil, err
	}
	snap := c.snapshot
	attrs := s.Attributes()
	readForMatches(snap, attrs)
	if also != nil {
		also(snap, attrs)
	}
	snap.Problems = append(snap.Problems, attrs.Problems()...)
	slices.Sort(c.tree.mounts)
	return &Reading{
		Snapshot: snap,
		Sysfs:    trace(),
		Proc:     s.proc.recorded,
		Links:    c.tree.links,
		Mounts:   c.tree.mounts,
	}, nil
}

// scanUntilRead scans until all devices are read, for a second. Unread devices would be missing in
// a recording, because it can't be scanned again later.
func (s *Scanner) scanUntilRead(ctx context.Context) (*scan, error) {
	deadline := time.Now().Add(time.Second)
	for {
		c, err := s.scan(ctx)
		if err != nil {
			return c, err
		}
		isComplete := len(c.snapshot.UnreadHardware) == 0
		if isComplete || time.Now().After(deadline) {
			return c, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(slowAfter):
		}
	}
}

// readForMatches reads data that matches may request, besides attributes that a configuration
// names. Only the trace of the reads matters, not their results.
func readForMatches(snap *device.Snapshot, attrs *Attributes) {
	for _, n := range snap.Nets {
		attrs.InUse(n)
		readDrivers(n, attrs)
	}
	for _, n := range snap.Nodes {
		if n.Type == device.CharNode && n.SysPath == "" {
			attrs.CharDriver(n.Major)
		}
		readDrivers(n, attrs)
	}
}

// readDrivers reads the drivers of all devices from a node up to its hardware.
func readDrivers(n *device.Node, attrs *Attributes) {
	if n.Hardware == nil {
		return
	}
	for dir := n.SysPath; strings.HasPrefix(dir, n.Hardware.Path); dir = up(dir) {
		attrs.Driver(dir)
	}
}

const (
	hostSysfs = "/sys"
	hostProc  = "/proc"
)

// procOf returns the /proc that belongs to a sysfs. For the sysfs of this kernel it is the /proc of
// this kernel. For any other, such as a recorded machine, it is the directory next to it.
func procOf(root string) string {
	if root == hostSysfs || sysfs.New(root).IsKernel() {
		return hostProc
	}
	return filepath.Join(filepath.Dir(filepath.Clean(root)), "proc")
}

// proc reads files below /proc with one record per line.
type proc struct {
	// root is a directory such as "/proc".
	root string
	// recorded are the relevant lines by file. It is nil without a recording.
	recorded map[string]string
}

// each calls use for every line of a file. use returns the line to record: the relevant part of the
// line, in the format of the file, or an empty string. A missing file has no lines.
func (p proc) each(file string, use func(line []byte) (relevant string)) error {
	f, err := os.Open(filepath.Join(p.root, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var recorded strings.Builder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := use(lines.Bytes())
		if line != "" && p.recorded != nil {
			recorded.WriteString(line + "\n")
		}
	}
	if recorded.Len() > 0 {
		p.recorded[file] = recorded.String()
	}
	return lines.Err()
}
