package dra

import (
	"context"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
)

// Quiet fills in the hooks that are missing, so that they do nothing.
func Quiet(o Options) Options {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Wrote == nil {
		o.Wrote = func(error) {}
	}
	o.Prepared = func(time.Duration, error) {}
	o.Enter = func(context.Context) (func(), error) {
		return func() {}, nil
	}
	return o
}

// SetAnswer replaces how long a call of the kubelet may wait.
func (p *Plugin) SetAnswer(d time.Duration) {
	p.AnswerWithin = d
	p.timing.hang = d
}

// SetStart replaces how long a pod may need from the answer to a prepare to its first process.
func (p *Plugin) SetStart(d time.Duration) { p.StartWithin = d }

// SweepNow is Sweep, which returns when it is over.
func (p *Plugin) SweepNow(ctx context.Context, known func(cdi.Claim) bool) {
	p.claims.sweep(ctx, known)
}
