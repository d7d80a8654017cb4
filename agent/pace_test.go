package agent

import (
	"testing"
	"time"
)

// Events at full speed for ten seconds, as a storm and one by one.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		look, every time.Duration // what a look takes; the time between events
		looks       int           // at most
		share       float64       // of a core, at most
		worst       time.Duration // pause
	}{
		{"a storm on a fast machine", time.Millisecond, 0, 2700, 0.28, 4 * time.Millisecond},
		{"a storm on a slow one", 20 * time.Millisecond, 0, 145, 0.29, 61 * time.Millisecond},
		{"the kernel keeps looks waiting", time.Second, 0, 10, 1, maxPause},
		{"a device each second", 20 * time.Millisecond, time.Second, 10, 0.02, 0},
		{"an event each 10 ms", time.Millisecond, 10 * time.Millisecond, 1000, 0.1, 0},
	} {
		start := time.Unix(0, 0)
		now, end := start, start.Add(10*time.Second)
		var p pace
		var busy, worst time.Duration
		looks := 0
		for now.Before(end) {
			pause := p.pause(now)
			worst = max(worst, pause)
			now = now.Add(pause + c.look)
			p.spent(now, c.look)
			busy += c.look
			looks++
			now = now.Add(c.every)
		}
		if share := busy.Seconds() / now.Sub(start).Seconds(); looks > c.looks || share > c.share || worst > c.worst {
			t.Errorf("%s: %d looks, %.3f of a core, paused for up to %v; want at most %d, %.3f, %v", c.name, looks, share, worst, c.looks, c.share, c.worst)
		}
	}
}

// What a single device makes is looked at at once.
func TestPaceOfOneDevice(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Unix(0, 0)
	for event := range 8 {
		if d := p.pause(now); d > 0 {
			t.Errorf("event %d waits for %v", event, d)
		}
		now = now.Add(5 * time.Millisecond)
		p.spent(now, 5*time.Millisecond)
	}
}

// News go out before the next look, and keep it no longer than that.
func TestPaceAfterNews(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Unix(0, 0)
	p.news = now
	p.spent(now, time.Millisecond)
	if d := p.pause(now); d != lull {
		t.Errorf("the next look waits for %v; want %v", d, lull)
	}
	if d := p.pause(now.Add(lull)); d != 0 {
		t.Errorf("the look after that waits for %v", d)
	}
}
