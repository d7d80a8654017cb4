package inventory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/device"
)

const (
	// settling is how long after an event of a device each update reads it anew.
	// Some things are made after the event that should announce them: a driver that
	// fails to probe a new device is shown as its driver until it has failed, and
	// there is no event of that (really_probe in drivers/base/dd.c).
	settling = 2 * time.Second
	// recent is how long before the first scan the creation of a node counts as an
	// event: well over the time that devices settle for.
	recent = time.Second
)

// Update returns what Scan does, and reads only what the batch makes stale of what was
// read before. Everything is read again where the batch says All, where there was no
// scan before, and where the cache does not fit what is read. No batch that was taken
// may be left out.
func (s *Scanner) Update(ctx context.Context, b Batch) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.events, func(_ string, at time.Time) bool { return now.Sub(at) > settling })
	for _, p := range b.Paths {
		s.events[p] = b.At
		if b.At.IsZero() {
			s.events[p] = now
		}
	}
	if m := s.memory; m != nil && !b.All && len(s.events) <= maxPaths {
		m.forget(slices.Collect(maps.Keys(s.events)))
		s.memory = nil // until it is known to be whole
		c, _, err := s.read(ctx, m, false)
		if err != nil {
			return nil, err
		}
		if !c.doubt {
			s.memory = m
			return c.snapshot, nil
		}
		s.log.Debug("what is remembered of the host does not fit what is read, reading it all")
	}
	c, _, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	return c.snapshot, nil
}

// all reads everything, and remembers it. The lock is held.
func (s *Scanner) all(ctx context.Context) (*scan, *devTree, error) {
	s.memory = nil
	m := newMemory()
	c, tree, err := s.read(ctx, m, true)
	if err != nil {
		return nil, nil, err
	}
	s.memory = m
	if !s.scanned {
		s.addRecentNodes(c.snapshot.Nodes, tree, time.Now())
	}
	s.scanned = true
	return c, tree, nil
}

// addRecentNodes counts nodes that were made shortly before the first scan as events of
// their hardware, which nobody listened to: a driver may be about to make the next node.
// A write to a node and another owner look the same.
func (s *Scanner) addRecentNodes(nodes []*device.Node, tree *devTree, now time.Time) {
	for _, n := range nodes {
		if n.Hardware == nil || tree.recording {
			continue
		}
		age := now.Sub(time.Unix(0, unix.TimespecToNsec(tree.ids[n.Path].changed)))
		if age < 0 || age > recent {
			continue
		}
		// By the clock that a change of the time leaves alone.
		if made := now.Add(-age); made.After(s.events[n.Hardware.Path]) {
			s.events[n.Hardware.Path] = made
		}
	}
}

// LastEvent returns when the kernel announced a change of the hardware at a sysfs path or
// of anything below it last; zero is not in the last two seconds. Nodes that were made
// shortly before the first scan count as events.
func (s *Scanner) LastEvent(hardware string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	for p, at := range s.events {
		if at.After(last) && (p == hardware || strings.HasPrefix(p, hardware+"/")) {
			last = at
		}
	}
	return last
}

// Answered returns a channel that has a value when a device that was left out,
// since it did not answer in time, has answered: an update shows it. It is for
// one reader.
func (s *Scanner) Answered() <-chan struct{} { return s.answers }
