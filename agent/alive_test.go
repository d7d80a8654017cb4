package agent

import (
	"testing"
	"time"
)

// A loop that waits is alive however long nothing happens; one that is busy for
// minutes is not.
func TestAlive(t *testing.T) {
	t.Parallel()
	a := &Agent{}
	if err := a.Alive(); err != errNotLooked {
		t.Errorf("before the first look: %v, want %v", err, errNotLooked)
	}
	a.serving.Store(&set{})
	if err := a.Alive(); err != nil {
		t.Errorf("waiting: %v", err)
	}
	for ago, alive := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		since := time.Now().Add(-ago)
		a.busy.Store(&since)
		if err := a.Alive(); (err == nil) != alive {
			t.Errorf("busy for %v: %v", ago, err)
		}
	}
}
