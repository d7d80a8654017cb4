package agent

import (
	"context"
	"errors"
	"time"

	"github.com/generic-dp/generic-dp/device"
)

// freshLimit is how long an answer to Allocate waits for a look at the host. The
// kubelet waits for as long as it takes, and starts no other pod meanwhile.
const freshLimit = 500 * time.Millisecond

// looks are requests to look at the host at once. Each is closed when what was
// seen is published.
type looks chan chan struct{}

// wait has the host looked at and returns when what was seen is published.
func (q looks) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freshLimit)
	defer cancel()
	done := make(chan struct{})
	select {
	case q <- done:
	case <-ctx.Done():
		return errTooSlow
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errTooSlow
	}
}

var errTooSlow = errors.New("the host could not be looked at in time: whether it uses the device itself is not known")

// quietlyUsed reports whether the host may use by now what is offered: no event tells
// that an interface becomes a port of a bridge, or that a route leads through it.
func quietlyUsed(o device.Offer) bool { return len(o.Nets) > 0 }
