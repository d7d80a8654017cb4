package matchers

import (
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// matchTime is how long one run of Match may compare patterns and read the host. An ordinary resource
// takes less than a millisecond.
const matchTime = 2 * time.Second

// clockEvery is the size of the patterns that are compared before the clock is read again. Comparing
// them with a short text takes some 10 µs.
const clockEvery = 4096

// deadline limits the time of the current resource. One half of the time is for all resources together. The
// other half is divided equally among them, so that a resource without end leaves the others their share.
type deadline struct {
	now func() time.Time
	// share is the time of each resource, and shared what is left for all of them.
	share, shared time.Duration
	// began is when the current resource began.
	began time.Time
	// work is the size of the patterns that were compared since the clock was read.
	work int
	// isOver is set if the current resource has used up its time.
	isOver bool
}

// newDeadline returns the deadline of a run. A resource has one share, and its when another one.
func newDeadline(cfg *config.Config, now func() time.Time) deadline {
	if now == nil {
		now = time.Now
	}
	shares := 2 * max(1, len(cfg.Resources))
	return deadline{
		now:    now,
		share:  matchTime / 2 / time.Duration(shares),
		shared: matchTime / 2,
		began:  now(),
	}
}

// begin begins with a resource, or with its when. What the one before has left of its share is lost.
func (d *deadline) begin() {
	now := d.now()
	d.shared -= max(0, min(now.Sub(d.began)-d.share, d.shared))
	d.began = now
	d.work = 0
	d.isOver = false
}

// end is when the time of the current resource is over.
func (d *deadline) end() time.Time { return d.began.Add(d.share + d.shared) }

// isPast reports whether the time of the current resource is over. From then on, no condition of the resource
// in match holds, each in exclude does, and the resource has no devices.
func (d *deadline) isPast() bool {
	if !d.isOver {
		d.work = 0
		d.isOver = d.now().After(d.end())
	}
	return d.isOver
}

// isLate reports whether there is no time left to compare a value with patterns.
func (m *run) isLate(v pattern.Values) bool {
	d := &m.deadline
	d.work += v.Size()
	if d.work < clockEvery {
		return d.isOver
	}
	return d.isPast()
}
