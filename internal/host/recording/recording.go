// Package recording stores hosts as text: Record writes the reads of a scan into an
// archive, and Unpack makes a tree from an archive that package inventory scans like
// the host. A scan of the recording equals the scan of the host, except for problems:
// unreadable files are missing, and the head of the archive names them.
//
// An archive is in txtar format (golang.org/x/tools/txtar): a head with a description,
// and files, which are named
//
//	sys/devices/…/idVendor                    an attribute
//	sys/bus/usb/devices/1-2 -> ../../../…     a symbolic link
//	dev/ttyUSB0                               a node: "char 188:0" or "block 8:0"
//	dev/serial/by-id/usb-x -> ../../ttyUSB0   a symbolic link
//	dev/snd/                                  an empty directory
//	dev/pts/                                  "mount": another file system is mounted there
//	proc/1/net/route                          lines of a file of /proc that matter
//	host/opt/fw.bin                           the name of any other file
//	host/opt/fw/                              an empty directory
//
// An ambiguous text of an attribute is written as a Go string in place of a content, and files with an
// ambiguous name or target are left out:
//
//	sys/devices/…/serial = "\xff\n-- x --\n"
//
// so that an archive is plain text for any device, and survives copy and paste.
package recording

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
)

// Tree is the directory of an unpacked machine.
type Tree struct{ Root string }

// Sysfs is the path of the machine's /sys.
func (t Tree) Sysfs() string { return filepath.Join(t.Root, "sys") }

// Dev is the path of the machine's /dev.
func (t Tree) Dev() string { return filepath.Join(t.Root, "dev") }

// Files is the path of the machine's files outside of /dev and /sys.
func (t Tree) Files() string { return filepath.Join(t.Root, "host") }

// Options are options of a recording.
type Options struct {
	// Head is the start of the archive, in lines; problems of the scan follow it.
	Head string
	// Redact leaves out identifying data, see redaction.
	Redact bool
	// Also is called with the snapshot of the host; the attributes that it reads,
	// such as those that a configuration names, are recorded too, and the names of the files that it
	// returns: absolute paths outside of /dev. A directory ends with "/". nil reads nothing.
	Also func(snap *device.Snapshot, attrs *inventory.Attributes) (files []string)
}

// Record scans a host and returns its archive for Unpack. Anything that an archive cannot
// contain is left out, and the head names it: a recording with a gap is better for a bug
// report than none.
//
// It fails if the scan fails.
func Record(ctx context.Context, host inventory.Options, o Options) ([]byte, error) {
	var files []string
	reading, err := inventory.Read(ctx, host, func(snap *device.Snapshot, attrs *inventory.Attributes) {
		if o.Also != nil {
			files = o.Also(snap, attrs)
		}
	})
	if err != nil {
		return nil, err
	}
	var redact *redaction // nil does not redact
	if o.Redact {
		redact = newRedaction(reading)
	}
	// Redaction comes first, since it may change which names conflict.
	entries, leftOut := valid(record(reading, files, redact))
	reading.Snapshot.Problems = append(reading.Snapshot.Problems, leftOut...)
	archive := &txtar.Archive{
		Comment: []byte(o.Head + problems(reading, redact)),
	}
	for _, e := range entries {
		archive.Files = append(archive.Files, e.format())
	}
	return txtar.Format(archive), nil
}

// valid returns the entries that an archive may contain, and a problem for each other one.
func valid(entries []entry) ([]entry, []device.Problem) {
	var kept []entry
	var leftOut []device.Problem
	seen := make(map[string]kind)
	for _, e := range entries {
		if err := e.check(seen); err != nil {
			leftOut = append(leftOut, device.Problem{
				Subject: e.name,
				Reason:  "left out: " + err.Error(),
			})
			continue
		}
		kept = append(kept, e)
	}
	return kept, leftOut
}

// problems lists the failed reads of the scan and the entries that were left out, for the head of
// the archive. It is empty if there are none.
func problems(r *inventory.Reading, redact *redaction) string {
	if len(r.Snapshot.Problems) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("What could not be read, and is not here:\n")
	for _, p := range r.Snapshot.Problems {
		// A subject is a path of /dev or sysfs, either of which may contain a serial number.
		subject := redact.text(redact.sysfs(p.Subject))
		reason := redact.text(p.Reason)
		fmt.Fprintf(&b, "  %s: %s\n", printable(subject), printable(reason))
	}
	b.WriteString("\n")
	return b.String()
}

// printable returns s, quoted if it has line breaks or invisible characters: the head must not
// contain a line that starts a file.
func printable(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.Quote(s)
}
