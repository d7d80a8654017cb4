package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/inventory"
)

// Options are options of a recording.
type Options struct {
	// Head is the start of the archive, in lines; problems of the scan follow it.
	Head string
	// Redact leaves out identifying data, see redaction.
	Redact bool
	// Also is called with the snapshot of the host; the attributes that it reads are
	// recorded too: those that a configuration names. nil reads nothing.
	Also func(snap *device.Snapshot, attrs *inventory.Attributes)
}

// Record scans a host and returns its archive, for Unpack: the reads of the scan. The
// error is that of the scan, or names what an archive cannot contain.
func Record(ctx context.Context, host inventory.Options, o Options) ([]byte, error) {
	reading, err := inventory.Read(ctx, host, o.Also)
	if err != nil {
		return nil, err
	}
	r := &recorder{Reading: reading, byName: make(map[string]entry)}
	if o.Redact {
		r.redact = newRedaction(reading)
	}
	r.recordDev()
	r.recordSysfs()
	r.recordProc()
	entries := r.entries()
	ar := &txtar.Archive{Comment: []byte(o.Head + r.problems())}
	for _, e := range entries {
		ar.Files = append(ar.Files, e.format())
	}
	archive := txtar.Format(ar)
	again, err := parse(archive)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	if !slices.Equal(entries, again) {
		return nil, errors.New("recording: the archive does not read back unchanged")
	}
	return archive, nil
}

// recorder collects the entries of an archive.
type recorder struct {
	*inventory.Reading
	redact *redaction // nil does not redact
	byName map[string]entry
}

func (r *recorder) add(e entry) { r.byName[e.name] = e }

// recordDev adds the files below /dev.
func (r *recorder) recordDev() {
	at := func(p string) string { return r.redact.path(p)[1:] }
	for _, d := range r.Snapshot.Dirs[1:] {
		r.add(entry{name: at(d), kind: dir})
	}
	for _, d := range r.Mounts {
		r.add(entry{name: at(d), kind: mount})
	}
	for p, target := range r.Links {
		r.add(entry{name: at(p), kind: link, text: r.redact.target(p, target)})
	}
	for _, n := range r.Snapshot.Nodes {
		word := "char"
		if n.Type == device.BlockNode {
			word = "block"
		}
		r.add(entry{name: at(n.Path), text: fmt.Sprintf("%s %d:%d\n", word, n.Major, n.Minor)})
	}
}

// recordSysfs adds the reads of sysfs.
func (r *recorder) recordSysfs() {
	at := func(p string) string { return "sys/" + r.redact.sysfs(p) }
	for d := range r.Sysfs.Dirs {
		r.add(entry{name: at(d), kind: dir})
	}
	for p, target := range r.Sysfs.Links {
		r.add(entry{name: at(p), kind: link, text: r.redact.sysfs(target)})
	}
	for p, text := range r.Sysfs.Attrs {
		if text, ok := r.redact.attr(p, text); ok {
			r.add(entry{name: at(p), text: text})
		}
	}
}

// recordProc adds the used lines of /proc.
func (r *recorder) recordProc() {
	for p, lines := range r.Proc {
		r.add(entry{name: "proc/" + p, text: r.redact.proc(lines)})
	}
}

// entries returns all entries by name. Directories with content need no entry.
func (r *recorder) entries() []entry {
	all := slices.Collect(maps.Values(r.byName))
	// The content of a directory follows it.
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Compare(strings.ReplaceAll(a.name, "/", "\x00"), strings.ReplaceAll(b.name, "/", "\x00"))
	})
	kept := all[:0]
	for i, e := range all {
		if e.kind != dir || i+1 == len(all) || !strings.HasPrefix(all[i+1].name, e.name+"/") {
			kept = append(kept, e)
		}
	}
	return kept
}

// problems lists what the scan could not read.
func (r *recorder) problems() string {
	if len(r.Snapshot.Problems) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("What could not be read, and is not here:\n")
	for _, p := range r.Snapshot.Problems {
		fmt.Fprintf(&b, "  %s: %s\n", shown(r.redact.text(r.redact.sysfs(p.Subject))), shown(r.redact.text(p.Reason)))
	}
	b.WriteString("\n")
	return b.String()
}

// shown is s as a part of one line.
func shown(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.Quote(s)
}
