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
	// IsLate is set if the configuration could not be matched in time.
	IsLate bool
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
// in time, so that its lists are not complete. Follow returns when to call it again, the zero time for
// never.
func (t *Trial) Follow(now time.Time, late bool) (wake time.Time) {
	t.IsLate = late
	if late {
		t.published = time.Time{}
		return time.Time{}
	}
	if t.published.IsZero() {
		t.published = now
	}
	if now.Before(t.end()) {
		return t.end()
	}
	return time.Time{}
}

// end is when the configuration is good, if its lists are published.
func (t *Trial) end() time.Time { return t.published.Add(t.served.trial) }

// Good returns the served configuration if it is good, and otherwise the zero Reading. At a normal exit, it
// is good if its lists are published: it did not kill the program.
func (t *Trial) Good(now time.Time, isExit bool) Reading {
	isProven := isExit || !now.Before(t.end())
	if t.published.IsZero() || !isProven {
		return Reading{}
	}
	return t.served
}
