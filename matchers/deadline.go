package matchers

import (
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// matchTime is how long one run of Match may compare patterns. An ordinary resource takes less than a
// millisecond.
const matchTime = 4 * time.Second

// clockEvery is the size of the patterns that are compared before the clock is read again. Comparing
// them with a short text takes some 10 µs.
const clockEvery = 4096

// deadline limits the time of the current resource. Its quota is in microseconds.
type deadline struct {
	quota
	now func() time.Time
	// began is when the current resource began, and at is when its time ends.
	began time.Time
	at    time.Time
	// work is the size of the patterns that were compared since the clock was read.
	work int
	// isOver is set if the current resource has used up its time.
	isOver bool
}

func newDeadline(cfg *config.Config, now func() time.Time) deadline {
	if now == nil {
		now = time.Now
	}
	return deadline{
		quota: newQuota(int(matchTime.Microseconds()), len(cfg.Resources)),
		now:   now,
		began: now(),
	}
}

// begin begins with a resource.
func (d *deadline) begin() {
	now := d.now()
	took := min(now.Sub(d.began), matchTime)
	d.take(int(took.Microseconds()))
	d.quota.begin()
	d.began = now
	d.at = now.Add(time.Duration(d.left()) * time.Microsecond)
	d.work = 0
	d.isOver = false
}

// isLate reports whether there is no time left to compare a value with patterns. From then on, no
// condition of the resource in match holds, each in exclude does, and the resource has no devices.
func (m *run) isLate(v pattern.Values) bool {
	d := &m.deadline
	if d.isOver {
		return true
	}
	d.work += v.Size()
	if d.work < clockEvery {
		return false
	}
	d.work = 0
	d.isOver = d.now().After(d.at)
	return d.isOver
}

// reportLate reports a resource that used up its time. Its devices are not known: the ledger keeps
// the listed ones.
func (m *run) reportLate(r *config.Resource) {
	if !m.deadline.isOver {
		return
	}
	m.result.Late = true
	m.result.Unknown[r] = tooLate
	m.fault(r.Place, "fewer wildcards and alternatives, or a list of patterns that are spelled out", "%s", tooLate)
}

const tooLate = "comparing its patterns takes too long: its devices are not known, and listed ones stay listed"
