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
	since := time.Now()
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
		s := &served{since: since, shown: tc.shown}
		until := s.awaits(ledger.ListedResource{Name: "x", Devices: tc.devices}, since.Add(tc.after))
		if want := since.Add(firstResults); tc.want != until.Equal(want) || !tc.want && !until.IsZero() {
			t.Errorf("%s: awaits until %v, want %t", name, until, tc.want)
		}
	}
}
