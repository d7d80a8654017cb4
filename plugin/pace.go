package plugin

import (
	"math/rand/v2"
	"time"
)

const (
	// fastWindow is how long a new kubelet.sock may refuse connections before
	// that counts as a failure: bind makes the file, listen comes after it.
	// After a boot the first pods are admitted some 40 ms later.
	fastWindow = 200 * time.Millisecond
	// retryFast is the pause between attempts in that window, and after a
	// registration's end: the kubelet closes the connection a few instructions
	// before it is done with the client.
	retryFast = time.Millisecond
	retryMin  = 10 * time.Millisecond
	retryMax  = 5 * time.Second
	// retryAbandoned is the pause after a Register call without an answer.
	retryAbandoned = 100 * time.Millisecond
	// steady is how long a registration must live to count as a good one.
	steady = 10 * time.Second
)

// pace spaces out attempts to register: at once when there is reason to, slower
// and slower when that does not help.
type pace struct{ tries int }

func (p *pace) reset() { p.tries = 0 }

// next is the pause after an attempt that ended in r, made age after the
// kubelet's socket was.
func (p *pace) next(r result, age time.Duration) time.Duration {
	if !r.connected && age < fastWindow {
		return retryFast
	}
	if r.err == nil && r.lived >= steady {
		p.reset()
	}
	p.tries++
	if p.tries == 1 {
		if r.abandoned {
			return retryAbandoned
		}
		return retryFast
	}
	d := retryMax
	if shift := p.tries - 2; shift < 10 {
		d = min(d, retryMin<<shift)
	}
	// Several resources, and several instances in a rolling update, must not
	// keep step.
	return d - rand.N(d/4)
}
