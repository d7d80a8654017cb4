package machine

import (
	"fmt"
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
}

// sysfs returns the redacted path below /sys, or the redacted target of a link there.
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

// elem is sysfs for one element: the name of an interface may follow the kind of a
// link.
func (r *redaction) elem(e string) string {
	name := strings.TrimPrefix(e, "upper_")
	if other, ok := r.elems[name]; ok {
		return strings.TrimSuffix(e, name) + other
	}
	return e
}

// proc returns the redacted lines of a file below /proc.
func (r *redaction) proc(lines string) string {
	if r == nil {
		return lines
	}
	var b strings.Builder
	for line := range strings.Lines(lines) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		for i, f := range fields {
			name, colon := strings.CutSuffix(f, ":")
			fields[i] = r.elem(name)
			if colon {
				fields[i] += ":"
			}
		}
		b.WriteString(strings.Join(fields, " ") + "\n")
	}
	return b.String()
}
