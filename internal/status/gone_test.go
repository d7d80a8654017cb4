package status_test

import (
	"slices"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
)

// Devices that have left the lists are shown for a day, unless they come back or an edit has
// removed them.
func TestGoneDevices(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	left := func(id, reason string, ago time.Duration) status.Event {
		return status.Event{
			Time:     now.Add(-ago),
			Resource: "example.com/zigbee",
			ID:       id,
			What:     status.LeftList + reason,
		}
	}
	s := status.Status{
		Events: []status.Event{
			left("old", ledger.ReasonGone, 25*time.Hour),
			left("gone", ledger.ReasonGone, 3*time.Hour),
			left("back", ledger.ReasonGone, 2*time.Hour),
			left("gone", ledger.ReasonGone, time.Hour),
			left("removed", ledger.ReasonRemoved, time.Hour),
		},
		Resources: []status.Resource{{
			Name:    "example.com/zigbee",
			Devices: []status.Device{{ID: "back", Health: status.Healthy}},
		}},
	}
	var lines []string
	for _, a := range s.Alerts(now) {
		lines = append(lines, append([]string{a.Heading}, a.Lines...)...)
	}
	want := []string{"Gone in the last 24 h", "example.com/zigbee gone, at 2026-11-27 11:00:00 UTC"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}
