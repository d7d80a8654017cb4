// The race detector ends the program where a bubble of synctest has thousands of goroutines
// (golang/go#78156).
//go:build !race

package health

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// network is a fake network that counts connections.
type network struct {
	start time.Time

	mu      sync.Mutex
	open    int
	maxOpen int
	// dialed has the times of the checks of each address since the start.
	dialed map[string][]time.Duration
	// takes is how long a connection takes. Longer than dialTimeout is an error.
	takes map[string]time.Duration
}

// useNetwork replaces the network of a Prober.
func (p *proberTest) useNetwork() *network {
	n := &network{start: p.start, dialed: map[string][]time.Duration{}, takes: map[string]time.Duration{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host.dial = n.dial
	return n
}

func (n *network) dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	n.mu.Lock()
	n.open++
	n.maxOpen = max(n.maxOpen, n.open)
	n.dialed[address] = append(n.dialed[address], time.Since(n.start))
	takes := n.takes[address]
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open--
	}()
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// peak is the maximum number of connections at the same time.
func (n *network) peak() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.maxOpen
}

// times returns the times of the checks of each address.
func (n *network) times() map[string][]time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string][]time.Duration{}
	for address, times := range n.dialed {
		all[address] = slices.Clone(times)
	}
	return all
}

// setTakes sets how long a connection takes.
func (n *network) setTakes(address string, takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takes[address] = takes
}

// connects are checks of n addresses with a prefix.
func connects(interval time.Duration, prefix string, n int) map[string]device.Check {
	checks := map[string]device.Check{}
	for i := range n {
		address := fmt.Sprint(prefix, i)
		checks[address] = device.Check{TCP: address, Interval: interval}
	}
	return checks
}

func TestChecksRunAFewAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		network := p.useNetwork()
		const devices = 1000
		checks := connects(30*s, "host", devices)
		for address := range checks {
			network.setTakes(address, 100*time.Millisecond)
		}
		p.Set(checks)
		// 32 at a time take 0.1 s: 1,000 take 3.2 s.
		p.advance(4 * s)
		for id, reason := range p.Results() {
			if reason != "" {
				t.Fatalf("%s: %q after all had time for their first check", id, reason)
			}
		}
		if network.peak() != maxRunning {
			t.Errorf("%d connections at the same time, want %d", network.peak(), maxRunning)
		}
	})
}

// Hosts that do not answer delay neither the checks of others nor their recovery.
func TestSilentHostsDelayNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		network := p.useNetwork()
		silent := connects(10*s, "silent", 500)
		for address := range silent {
			network.setTakes(address, time.Hour)
		}
		p.Set(silent)
		p.advance(2 * time.Minute)
		checks := connects(10*s, "good", 10)
		for id, check := range silent {
			checks[id] = check
		}
		p.Set(checks)
		p.advance(0)
		p.advance(100 * s)
		for i := range 10 {
			id := fmt.Sprint("good", i)
			if reason := p.Results()[id]; reason != "" {
				t.Errorf("%s: %q", id, reason)
			}
			if n := len(network.times()[id]); n < 10 {
				t.Errorf("%s was checked %d times in 100 s, want every 10 s", id, n)
			}
		}
		for address := range silent {
			if n := len(network.times()[address]); n < 2 {
				t.Errorf("%s was checked %d times in 220 s, want it repeated", address, n)
			}
		}
		if network.peak() > maxRunning {
			t.Errorf("%d connections at the same time, want at most %d", network.peak(), maxRunning)
		}
	})
}

// Checks that hang in the kernel are limited, whether or not their devices are still there.
// The network is still checked.
func TestHangingChecksAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		network := p.useNetwork()
		var release []func()
		hung := func() (n int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, times := range p.opened {
				n += len(times)
			}
			return n
		}
		for round := range 4 {
			checks := connects(10*s, "host", 3)
			for i := range 50 {
				node := fmt.Sprintf("/dev/r%d-%d", round, i)
				release = append(release, p.hang(node))
				checks[node] = opens(10*s, node)
			}
			p.Set(checks)
			p.advance(20 * s)
		}
		if n := hung(); n < maxHung || n >= maxHung+maxRunning {
			t.Errorf("%d checks hang, want %d or as many more as run at a time", n, maxHung)
		}
		if !p.Stuck() {
			t.Error("the prober does not report that it is stuck")
		}
		if got := p.Results()["/dev/r3-0"]; got != ReasonPending {
			t.Errorf("a device that is not checked: %q, want %q", got, ReasonPending)
		}
		if n := len(network.times()["host0"]); n < 8 {
			t.Errorf("an address was checked %d times in 80 s, want every 10 s", n)
		}
		for _, f := range release {
			f()
		}
		p.advance(10 * s)
		for id, reason := range p.Results() {
			if reason != "" {
				t.Errorf("%s: %q after all checks returned", id, reason)
			}
		}
		if p.Stuck() {
			t.Error("the prober reports that it is stuck although all checks returned")
		}
	})
}
