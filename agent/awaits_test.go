package agent

import (
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/health"
	"github.com/generic-dp/generic-dp/ledger"
)

// The first list of a resource waits for the first results, not for long, and
// no other list waits.
func TestFirstListAwaitsResults(t *testing.T) {
	t.Parallel()
	looked := time.Now()
	healthy := ledger.Entry{Healthy: true}
	pending := ledger.Entry{Reason: health.ReasonPending}
	for name, tc := range map[string]struct {
		devices []ledger.Entry
		shown   bool
		after   time.Duration
		want    bool
	}{
		"a result is due":       {devices: []ledger.Entry{healthy, pending}, want: true},
		"all results are there": {devices: []ledger.Entry{healthy, {Reason: "tcp x:1: does not answer"}}},
		"no devices":            {},
		"the time is up":        {devices: []ledger.Entry{pending}, after: firstResults},
		"listed before":         {devices: []ledger.Entry{healthy, pending}, shown: true},
	} {
		l := &loop{looked: looked, shown: map[string]bool{"x": tc.shown, "y": true}}
		if got := l.awaits(ledger.ListedResource{Name: "x", Devices: tc.devices}, looked.Add(tc.after)); got != tc.want {
			t.Errorf("%s: awaits = %t, want %t", name, got, tc.want)
		}
	}
}
