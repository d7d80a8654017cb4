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
//
// An ambiguous name or link target is written as a Go string, as is the text of such an
// attribute, in place of a content:
//
//	sys/devices/…/serial = "\xff\n-- x --\n"
//
// so that an archive is plain text for any device, and survives copy and paste.
package recording

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
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

// Options are options of a recording.
type Options struct {
	// Head is the start of the archive, in lines; problems of the scan follow it.
	Head string
	// Redact leaves out identifying data, see redaction.
	Redact bool
	// Also is called with the snapshot of the host; the attributes that it reads,
	// such as those that a configuration names, are recorded too. nil reads nothing.
	Also func(snap *device.Snapshot, attrs *inventory.Attributes)
}

// Record scans a host and returns its archive, for Unpack: the reads of the scan. The
// error is that of the scan, or names what an archive cannot contain.
func Record(ctx context.Context, host inventory.Options, o Options) ([]byte, error) {
	reading, err := inventory.Read(ctx, host, o.Also)
	if err != nil {
		return nil, err
	}
	var redact *redaction // nil does not redact
	if o.Redact {
		redact = newRedaction(reading)
	}
	entries := slices.DeleteFunc(record(reading, redact), func(e entry) bool {
		err := e.check()
		if e.kind != link || err == nil {
			return false
		}
		reading.Snapshot.Problems = append(reading.Snapshot.Problems, device.Problem{Subject: e.name, Reason: "left out: " + err.Error()})
		return true
	})
	ar := &txtar.Archive{Comment: []byte(o.Head + problems(reading, redact))}
	for _, e := range entries {
		ar.Files = append(ar.Files, e.format())
	}
	archive := txtar.Format(ar)
	reparsed, err := parse(archive)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	if !slices.Equal(entries, reparsed) {
		return nil, errors.New("recording: the archive does not read back unchanged")
	}
	return archive, nil
}

// record returns the reads of a scan as entries, sorted by name.
func record(r *inventory.Reading, redact *redaction) []entry {
	byName := make(map[string]entry)
	add := func(e entry) { byName[e.name] = e }
	below := func(p string) string { return redact.path(p)[1:] }
	for _, d := range r.Snapshot.Dirs[1:] {
		add(entry{name: below(d), kind: dir})
	}
	for _, d := range r.Mounts {
		add(entry{name: below(d), kind: mount})
	}
	for p, target := range r.Links {
		add(entry{name: below(p), kind: link, text: redact.target(p, target)})
	}
	for _, n := range r.Snapshot.Nodes {
		word := "char"
		if n.Type == device.BlockNode {
			word = "block"
		}
		add(entry{name: below(n.Path), text: fmt.Sprintf("%s %d:%d\n", word, n.Major, n.Minor)})
	}
	sys := func(p string) string { return "sys/" + redact.sysfs(p) }
	for d := range r.Sysfs.Dirs {
		add(entry{name: sys(d), kind: dir})
	}
	for p, target := range r.Sysfs.Links {
		add(entry{name: sys(p), kind: link, text: redact.sysfs(target)})
	}
	for p, text := range r.Sysfs.Attrs {
		if text, ok := redact.attr(p, text); ok {
			add(entry{name: sys(p), text: text})
		}
	}
	for p, lines := range r.Proc {
		add(entry{name: "proc/" + p, text: redact.proc(lines)})
	}
	// The content of a directory follows it, and one with content needs no entry.
	key := func(e entry) string { return strings.ReplaceAll(e.name, "/", "\x00") }
	all := slices.Collect(maps.Values(byName))
	sort.Slice(all, func(i, j int) bool { return key(all[i]) < key(all[j]) })
	kept := all[:0]
	for i, e := range all {
		if e.kind != dir || i+1 == len(all) || !strings.HasPrefix(all[i+1].name, e.name+"/") {
			kept = append(kept, e)
		}
	}
	return kept
}

// problems lists what the scan could not read.
func problems(r *inventory.Reading, redact *redaction) string {
	if len(r.Snapshot.Problems) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("What could not be read, and is not here:\n")
	for _, p := range r.Snapshot.Problems {
		fmt.Fprintf(&b, "  %s: %s\n", printable(redact.text(redact.sysfs(p.Subject))), printable(redact.text(p.Reason)))
	}
	b.WriteString("\n")
	return b.String()
}

// printable is s, quoted if it has line breaks or invisible characters.
func printable(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.Quote(s)
}

// Unpack writes a machine below dir, which must have none. It makes missing directories
// in bus, class, firmware and kernel that links below sys point to. Whatever the archive,
// nothing is written outside dir, and no scan of it leaves dir.
func Unpack(dir string, archive []byte) error {
	entries, err := parse(archive)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, d := range []string{"sys/devices", "sys/dev/char", "sys/dev/block", "dev"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.WriteFile("dev/"+inventory.RecordingMarker, nil, 0o644); err != nil {
		return err
	}
	for _, e := range entries {
		if err := e.unpack(root); err != nil {
			return fmt.Errorf("archive: %q: %w", e.name, err)
		}
	}
	return nil
}

func (e entry) unpack(root *os.Root) error {
	if e.kind == dir || e.kind == mount {
		if err := root.MkdirAll(e.name, 0o755); err != nil || e.kind == dir {
			return err
		}
		return root.WriteFile(e.name+"/"+inventory.RecordingMarker, nil, 0o644)
	}
	if err := root.MkdirAll(path.Dir(e.name), 0o755); err != nil {
		return err
	}
	if e.kind == file {
		f, err := root.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if _, err := f.WriteString(e.text); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	}
	for _, top := range []string{"sys/bus/", "sys/class/", "sys/firmware/", "sys/kernel/"} {
		if strings.HasPrefix(e.name, "sys/") && strings.HasPrefix(e.target(), top) {
			if err := root.MkdirAll(e.target(), 0o755); err != nil {
				return err
			}
		}
	}
	return root.Symlink(e.text, e.name)
}
