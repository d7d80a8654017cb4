package inventory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// settling is how long after an event of a device each update reads it anew.
// Some things are made after the event that should tell of them: a driver that
// fails to probe a new device is shown as its driver until it has failed, and
// there is no event of that (really_probe in drivers/base/dd.c).
const settling = 2 * time.Second

// Update returns what Scan does, and reads only what the batch makes doubtful
// of what it read before. Everything is read again where the batch says All,
// where there was no scan before, and where what is remembered does not fit
// what is read. No batch that was taken may be left out.
func (s *Scanner) Update(ctx context.Context, b Batch) (*device.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.told, func(_ string, at time.Time) bool { return now.Sub(at) > settling })
	for _, p := range b.Paths {
		s.told[p] = now
	}
	if len(s.told) > maxPaths {
		clear(s.told)
		b.All = true
	}
	if m := s.memory; m != nil && !b.All {
		m.forget(slices.Collect(maps.Keys(s.told)))
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
	return c, tree, nil
}

// Answered returns a channel that has a value when a device that was left out,
// since it did not answer in time, has answered: an update shows it. It is for
// one reader.
func (s *Scanner) Answered() <-chan struct{} { return s.answers }
