package agent

import "time"

// SetClock replaces the time by which devices live, before Run.
func (a *Agent) SetClock(now func() time.Time) { a.now = now }

// Busy reports whether the loop runs a pass.
func (a *Agent) Busy() bool { return a.page.busy.Load() }

// Remembers reports whether the pod with this UID, or static pod with this name, is known to
// hold a slot.
func (a *Agent) Remembers(uid string) bool {
	for _, known := range a.pods.holders.Save() {
		if known.Pod == uid || known.Name == uid {
			return true
		}
	}
	return false
}

// SetAnswerWithin replaces how long a prepare may wait, before Run.
func (a *Agent) SetAnswerWithin(d time.Duration) { a.dra.answerWithin = d }

// SetStartWithin replaces how long a pod may need from the answer to a prepare to its first
// process, before Run.
func (a *Agent) SetStartWithin(d time.Duration) { a.dra.startWithin = d }

// SetStuckAfter replaces how long a pass may take, before Run.
func (a *Agent) SetStuckAfter(d time.Duration) { a.page.stuckAfter = d }

// SetHealthHold replaces how long health directories show a loss, before Run.
func (a *Agent) SetHealthHold(d time.Duration) { a.outputs.health.Hold = d }
