package plugin

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// answered is what a member has answered, or why it has not.
type answered[T any] struct {
	Member
	answer T
	err    error
}

// each asks several members at the same time, and returns their answers in the order of members. A
// member that cannot be asked is an error without a call. No member delays the others for longer than
// the timeout. ask is called concurrently, with a context that ends at the timeout. err is set if ctx
// has ended: the answers are not complete then.
func each[T any](ctx context.Context, f *Fleet, members []Member, ask func(context.Context, *Member) (T, error)) (all []answered[T], err error) {
	// Each worker writes only the elements of its members.
	all = make([]answered[T], len(members))
	var workers errgroup.Group
	// Each worker is one kubectl process at a time.
	workers.SetLimit(max(f.Parallel, 1))
	for i, m := range members {
		a := &all[i]
		a.Member = m
		if m.Problem != "" {
			a.err = errors.New(m.Problem)
			continue
		}
		workers.Go(func() error {
			// The members that wait for a worker are not asked any more.
			if ctx.Err() != nil {
				return nil
			}
			ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, errNoAnswer(f.Timeout))
			defer cancel()
			a.answer, a.err = ask(ctx, &a.Member)
			return nil
		})
	}
	_ = workers.Wait() // the elements have the errors
	return all, context.Cause(ctx)
}
