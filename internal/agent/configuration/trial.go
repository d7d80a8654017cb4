package configuration

import "time"

// trialTime is how long a configuration is served before it is the last good one: by
// then its lists are built, registered and sent.
const trialTime = 10 * time.Second

// Trial decides when the served configuration is good, see the package comment. Only the loop uses it.
type Trial struct {
	// served is the configuration on trial. It is the zero Reading if the last good one is served in
	// place of the configuration on disk.
	served Reading
	// published is when its lists were published, the zero time if they are not complete.
	published time.Time
	// isLate is set if the configuration could not be matched in time.
	isLate bool
}

// Serve follows a reading. It is served from now on, unless it is broken: then the trial of the one that
// is served goes on.
func (t *Trial) Serve(r Reading) {
	if r.Config == nil {
		return
	}
	if r.Err != nil {
		r = Reading{}
	}
	*t = Trial{served: r}
}

// Follow is called when all lists are published. late is set if the configuration could not be matched
// in time, so that its lists are not complete. Follow returns the served configuration if it is good, and
// otherwise the zero Reading, and when to call it again, the zero time for never.
func (t *Trial) Follow(now time.Time, late bool) (good Reading, wake time.Time) {
	t.isLate = late
	if late {
		t.published = time.Time{}
		return good, wake
	}
	if t.published.IsZero() {
		t.published = now
	}
	if end := t.published.Add(t.served.trial); now.Before(end) {
		return good, end
	}
	return t.served, wake
}
