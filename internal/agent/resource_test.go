package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
)

func listOfDevices(entries ...ledger.Entry) ledger.ListedResource {
	return ledger.ListedResource{Devices: entries}
}

func TestAllocateOnlyWhatIsListedAndHealthy(t *testing.T) {
	t.Parallel()
	r := newResource(cdi.Resource{Name: "example.com/gpu"}, servingAlone())
	offer := func(id string) device.Offer {
		return device.Offer{ID: id, Slots: 2, Env: []device.Entry{{Key: device.Literal("GPU"), Value: device.Literal(id), PerDevice: true}}}
	}
	r.publish(listOfDevices(
		ledger.Entry{Offer: offer("a"), Present: true, Healthy: true, Listed: 3},
		ledger.Entry{Offer: offer("b"), Reason: "unplugged", Listed: 2},
		ledger.Entry{Offer: offer("c"), Healthy: true, Listed: 2},
	), &config.Resource{})
	for _, tc := range []struct{ ids, env, wantErr string }{
		{ids: "a", env: "a"},
		{ids: "c a a::1", env: "a,c"},
		{ids: "a z", wantErr: `device "z" is not known: it was removed, or has another ID now`},
		{ids: "a::3", wantErr: `device "a::3" is not known`},
		{ids: "c b::1", wantErr: `device "b::1" is unhealthy: unplugged`},
		{ids: "a::2", wantErr: `device "a::2" is unhealthy: ` + ledger.ReasonSlotRetired},
	} {
		got, err := r.Allocate(t.Context(), strings.Fields(tc.ids))
		if got.Env["GPU"] != tc.env || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%s: %v, %v; want %s or %q", tc.ids, got, err, tc.env, tc.wantErr)
		}
	}
}

// A device has its health since the pass that changed health or reason, whatever else changes.
func TestSince(t *testing.T) {
	t.Parallel()
	r := newResource(cdi.Resource{Name: "example.com/gpu"}, servingAlone())
	entry := func(id string, healthy bool, reason string) ledger.Entry {
		return ledger.Entry{Offer: device.Offer{ID: id, Slots: 1}, Listed: 1, Healthy: healthy, Reason: reason}
	}
	since := func(id string) time.Time {
		t.Helper()
		for _, d := range r.now.Load().devices() {
			if d.ID == id {
				return d.Since
			}
		}
		t.Fatalf("no device %q", id)
		return time.Time{}
	}
	began := time.Now()
	r.publish(listOfDevices(entry("a", true, ""), entry("b", false, ledger.ReasonGone)), &config.Resource{})
	a := since("a")
	b := since("b")
	if a.Before(began) || b.Before(began) {
		t.Errorf("since %v and %v, before the first list at %v", a, b, began)
	}
	r.publish(listOfDevices(entry("0", true, ""), entry("a", true, ""), entry("b", false, ledger.ReasonUnread)), &config.Resource{})
	if got := since("a"); !got.Equal(a) {
		t.Errorf("since %v, want %v: nothing has changed", got, a)
	}
	if got := since("b"); !got.After(b) {
		t.Errorf("since %v, want later than %v: the reason has changed", got, b)
	}
}

// Each reason leads to the section that explains it. Only an edit of the configuration makes a device
// Retiring.
func TestDevicesOfStatus(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		entry   ledger.Entry
		refused map[string]string
		health  string
		help    status.Section
		slots   status.Slots
	}{
		{
			name:   "healthy",
			entry:  ledger.Entry{Healthy: true, Present: true},
			health: status.Healthy,
			slots:  status.Slots{Healthy: 2},
		},
		{
			name:   "a check fails",
			entry:  ledger.Entry{Reason: "/dev/a: input/output error", Present: true},
			health: status.Unhealthy,
			help:   status.SectionHealthCheck,
			slots:  status.Slots{Unhealthy: 2},
		},
		{
			name:   "cannot be injected",
			entry:  ledger.Entry{Reason: "companion is missing", Present: true, Offer: device.Offer{Problem: "companion is missing"}},
			health: status.Unhealthy,
			help:   status.SectionInjection,
			slots:  status.Slots{Unhealthy: 2},
		},
		{
			name:    "a forgotten pod uses one slot",
			entry:   ledger.Entry{Healthy: true, Present: true},
			refused: map[string]string{"a::1": "a pod still runs"},
			health:  status.Healthy,
			slots:   status.Slots{Healthy: 1, Unhealthy: 1},
		},
		{
			name:    "forgotten pods use all slots",
			entry:   ledger.Entry{Healthy: true, Present: true},
			refused: map[string]string{"a": "a pod still runs", "a::1": "a pod still runs"},
			health:  status.Unhealthy,
			help:    status.SectionForgottenPod,
			slots:   status.Slots{Unhealthy: 2},
		},
		{
			name:   "moved to another resource",
			entry:  ledger.Entry{Reason: "to be offered by example.com/b", Withheld: true},
			health: status.Retiring,
			help:   status.SectionRetiring,
			slots:  status.Slots{Retiring: 2},
		},
		{
			name:   "count was lowered",
			entry:  ledger.Entry{Healthy: true, Present: true, Listed: 5},
			health: status.Healthy,
			slots:  status.Slots{Healthy: 2, Retiring: 3},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.entry.Offer.ID = "a"
			tc.entry.Offer.Slots = 2
			tc.entry.Listed = max(tc.entry.Listed, 2)
			p := &published{config: &config.Resource{}, refused: tc.refused}
			p.list = ledger.Slots(tc.entry)
			p.refuse(&tc.entry, p.list)
			p.entries = []ledger.Entry{tc.entry}
			got := newResource(cdi.Resource{Name: "example.com/a"}, servingAlone()).status(p, nil)
			if d := got.Devices[0]; d.Health != tc.health || d.Help != tc.help {
				t.Errorf("%s with help %q, want %s with %q", d.Health, d.Help, tc.health, tc.help)
			}
			if got.Slots != tc.slots {
				t.Errorf("slots %+v, want %+v", got.Slots, tc.slots)
			}
			// The numbers of a device and of its resource never contradict each other.
			if n := got.Devices[0].Slots; n != tc.slots.All() {
				t.Errorf("the device has %d slots, and its resource %d", n, tc.slots.All())
			}
		})
	}
}

// servingAlone is an instance that serves alone.
func servingAlone() *Agent {
	book := holds.New(holds.Options{
		Now:        time.Now,
		Generation: func() uint64 { return 0 },
		Changed:    func() {},
		Log:        slog.New(slog.DiscardHandler),
	})
	a := &Agent{gate: newGate(), outputs: &outputs{}, book: book}
	a.gate.open()
	return a
}
