package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// Events at full speed for ten seconds, as a storm and one by one.
func TestLimiter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		pass, every time.Duration // run time of a pass; time between events
		passes      int           // at most
		share       float64       // of a core, at most
		worst       time.Duration // delay
	}{
		{"a storm on a fast machine", time.Millisecond, 0, 2700, 0.28, 4 * time.Millisecond},
		{"a storm on a slow one", 20 * time.Millisecond, 0, 145, 0.29, 61 * time.Millisecond},
		{"the kernel keeps passes waiting", time.Second, 0, 10, 1, maxDelay},
		{"a device each second", 20 * time.Millisecond, time.Second, 10, 0.02, 0},
		{"an event each 10 ms", time.Millisecond, 10 * time.Millisecond, 1000, 0.1, 0},
	} {
		start := time.Unix(0, 0)
		now, end := start, start.Add(10*time.Second)
		var l limiter
		var busy, worst time.Duration
		passes := 0
		for now.Before(end) {
			delay := l.delay(now)
			worst = max(worst, delay)
			l.began = now.Add(delay)
			now = l.began.Add(c.pass)
			l.record(now)
			busy += c.pass
			passes++
			now = now.Add(c.every)
		}
		if share := busy.Seconds() / now.Sub(start).Seconds(); passes > c.passes || share > c.share || worst > c.worst {
			t.Errorf("%s: %d passes, %.3f of a core, delayed for up to %v; want at most %d, %.3f, %v", c.name, passes, share, worst, c.passes, c.share, c.worst)
		}
	}
}

// A burst of changed holds costs a small share of a core, and a single one is seen at once.
func TestHoldsDelay(t *testing.T) {
	t.Parallel()
	var l limiter
	now := time.Unix(100, 0)
	if delay := l.holdsDelay(now); delay != 0 {
		t.Errorf("before the first pass: %v, want 0", delay)
	}
	for pass, want := range map[time.Duration]time.Duration{
		time.Millisecond:       holdsFactor * time.Millisecond,
		100 * time.Millisecond: maxHoldsDelay,
	} {
		l.began = now.Add(-pass)
		l.record(now)
		if delay := l.holdsDelay(now); delay != want {
			t.Errorf("after a pass of %v: %v, want %v", pass, delay, want)
		}
		if delay := l.holdsDelay(now.Add(want)); delay != 0 {
			t.Errorf("%v after a pass of %v: %v, want 0", want, pass, delay)
		}
	}
}

// The first list of a resource waits for the first results of checks, but not for long,
// and no other list does.
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
		s := &resource{since: since, shown: tc.shown}
		until := s.awaits(ledger.ListedResource{Name: "x", Devices: tc.devices}, since.Add(tc.after))
		if want := since.Add(firstResults); tc.want != until.Equal(want) || !tc.want && !until.IsZero() {
			t.Errorf("%s: awaits until %v, want %t", name, until, tc.want)
		}
	}
}

// A disk that stays full, or a device that stays unread, wakes the loop ever more rarely,
// whatever else does.
func TestRetry(t *testing.T) {
	t.Parallel()
	var r retry
	start := time.Unix(0, 0)
	now := start
	for now.Before(start.Add(time.Hour)) {
		r.record(now, true)
		at := r.at
		if r.record(now.Add(time.Millisecond), true); r.at != at {
			t.Fatalf("a pass meanwhile moved the next try from %v to %v", at, r.at)
		}
		if d := at.Sub(now); d < 10*time.Second || d > time.Minute {
			t.Fatalf("the try after %v follows after %v", now.Sub(start), d)
		}
		now = at
	}
	if r.record(now, false); !r.at.IsZero() {
		t.Errorf("all is written, and tried again at %v", r.at)
	}
}

// A repeated failure is reported once: a report starts a pass, which saves again.
func TestSaverTellsWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSaver(newSignal())
		go s.run(ctx)
		for i, want := range []string{"full", "", "", "read-only", "<nil>", ""} {
			s.save(func() saved {
				return saved{config: []error{errors.New("full"), errors.New("full"), errors.New("full"), errors.New("read-only"), nil, nil}[i]}
			})
			synctest.Wait()
			told := ""
			select {
			case <-s.result:
				told = fmt.Sprint(s.last.Load().config)
			default:
			}
			if told != want {
				t.Errorf("save %d: told %q, want %q", i, told, want)
			}
		}
		cancel()
	})
}
