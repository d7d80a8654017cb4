package agent

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"
)

// IsWaiting reports whether the instance waits for another one, and is ready to serve.
func (a *Agent) IsWaiting() bool { return a.page.isWaiting.Load() }

// Answers takes the right to answer the kubelet from all instances, until release.
func Answers(t testing.TB, p Paths) (release func(), isOurs bool) {
	t.Helper()
	err := makeRunDir(p)
	must(t, err)
	other, err := openTurn(p.RunDir)
	must(t, err)
	t.Cleanup(other.close)
	isOurs, err = other.set(answers, alone)
	must(t, err)
	return other.close, isOurs
}

// Remembers reports whether the file of the book of holds has the pod with this UID.
func (a *Agent) Remembers(uid string) bool {
	text, _ := os.ReadFile(a.book.Journal)
	return strings.Contains(string(text), `"`+uid+`"`)
}

// SetAnswerWithin replaces how long a prepare may wait, before Run.
func (a *Agent) SetAnswerWithin(d time.Duration) {
	a.dra.plugin.AnswerWithin = cmp.Or(d, a.dra.plugin.AnswerWithin)
}

// SetStartWithin replaces how long a pod may need from the answer to a prepare to its first
// process, before Run.
func (a *Agent) SetStartWithin(d time.Duration) {
	a.dra.plugin.StartWithin = cmp.Or(d, a.dra.plugin.StartWithin)
}

// SetStuckAfter replaces how long a pass may take, before Run.
func (a *Agent) SetStuckAfter(d time.Duration) { a.page.stuckAfter = d }

// SetHealthHold replaces how long health directories show a loss, before Run.
func (a *Agent) SetHealthHold(d time.Duration) { a.outputs.health.Hold = d }

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
