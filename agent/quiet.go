package agent

import (
	"strings"
	"time"

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
