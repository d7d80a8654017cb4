package agent

import "time"

// SetClock replaces the time by which devices live, before Run.
func (a *Agent) SetClock(now func() time.Time) { a.now = now }

// Busy reports whether the loop runs a pass.
func (a *Agent) Busy() bool { return a.busy.Load() != nil }

// SetAnswerWithin replaces how long a prepare may wait, before Run.
func (a *Agent) SetAnswerWithin(d time.Duration) { a.dra.answerWithin = d }
