package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/inventory"
)

// renameInSysfs fills in elems.
func (r *redaction) renameInSysfs(reading *inventory.Reading) {
	r.elems = make(map[string]string)
	for _, n := range reading.Snapshot.Nets {
		if longNumber.MatchString(n.Path) {
			r.elems[n.Path] = fmt.Sprintf("REDACTED-%d", len(r.elems)+1)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(reading.Sysfs.Links)) {
		if rest, ok := strings.CutPrefix(p, "fs/btrfs/"); ok {
			uuid, _, _ := strings.Cut(rest, "/")
			if r.elems[uuid] == "" {
				r.elems[uuid] = fmt.Sprintf("REDACTED-%d", len(r.elems)+1)
			}
		}
	}
}

// sysfs returns what a path below /sys, or the target of a link there, is to be.
func (r *redaction) sysfs(p string) string {
	if r == nil || len(r.elems) == 0 {
		return p
	}
	elems := strings.Split(p, "/")
	for i, e := range elems {
		elems[i] = r.elem(e)
	}
	return strings.Join(elems, "/")
}

// elem is sysfs for one element: the name of an interface may be behind what
// the name of a link says of it.
func (r *redaction) elem(e string) string {
	name := strings.TrimPrefix(e, "upper_")
	if other, ok := r.elems[name]; ok {
		return strings.TrimSuffix(e, name) + other
	}
	return e
}

// proc returns what lines of a file below /proc are to be: paths below /dev as
// they are there, and others without names of what has a UUID, such as a pod.
func (r *redaction) proc(lines string) string {
	if r == nil {
		return lines
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		for i, f := range fields {
			name, colon := strings.CutSuffix(f, ":")
			switch {
			case strings.HasPrefix(f, "/dev/"):
				fields[i] = r.path(f)
			case strings.HasPrefix(f, "/"):
				fields[i] = r.mountPoint(f)
			case colon:
				fields[i] = r.elem(name) + ":"
			default:
				fields[i] = r.elem(f)
			}
		}
		b.WriteString(strings.Join(fields, " ") + "\n")
	}
	return b.String()
}

func (r *redaction) mountPoint(p string) string {
	elems := strings.Split(r.replace(p), "/")
	for i, e := range elems {
		if longNumber.MatchString(e) {
			elems[i] = "REDACTED"
		}
	}
	return strings.Join(elems, "/")
}
