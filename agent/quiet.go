package agent

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/inventory"
)

// calm is how long an event matters: well over the time after which a device
// counts as settled.
const calm = time.Second

// quiet remembers when the kernel last spoke of what, by its path in sysfs.
type quiet struct{ last map[string]time.Time }

func newQuiet() *quiet { return &quiet{last: map[string]time.Time{}} }

// note takes in a batch and forgets what is long past.
func (q *quiet) note(b inventory.Batch) {
	for path, at := range q.last {
		if b.At.Sub(at) > calm {
			delete(q.last, path)
		}
	}
	for _, path := range b.Paths {
		q.last[path] = b.At
	}
}

// begin takes in what happened to the hardware of nodes before anybody listened:
// the latest node that was made of each, by the time of its inode. A driver that
// was about to make the next one made no event since. here is where a path of the
// host is.
func (q *quiet) begin(nodes []*device.Node, here func(string) string, now time.Time) {
	for _, n := range nodes {
		var st unix.Stat_t
		if n.Hardware == nil || unix.Lstat(here(n.Path), &st) != nil {
			continue
		}
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFCHR && kind != unix.S_IFBLK {
			continue // a recorded machine's
		}
		made := time.Unix(0, unix.TimespecToNsec(st.Ctim))
		if age := now.Sub(made); age < 0 || age > calm || !made.After(q.last[n.Hardware.Path]) {
			continue
		}
		q.last[n.Hardware.Path] = made
	}
}

// since is when the kernel last spoke of the hardware with this sysfs path or
// of anything below it; zero for not lately.
func (q *quiet) since(hardware string) time.Time {
	var latest time.Time
	for path, at := range q.last {
		if at.After(latest) && (path == hardware || strings.HasPrefix(path, hardware+"/")) {
			latest = at
		}
	}
	return latest
}
