package fleet

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// each calls ask for each member, several at the same time, and returns why members have not
// answered, in their order. A member that cannot be asked is an error without a call. No member
// delays the others for longer than the timeout. ask is called concurrently, with an index of
// members and a context that ends at the timeout.
func (f *Fleet) each(ctx context.Context, members []Member, ask func(ctx context.Context, i int) error) []error {
	// Each worker writes only the elements of its members.
	failed := make([]error, len(members))
	for i := range members {
		if problem := members[i].Problem; problem != "" {
			failed[i] = errors.New(problem)
		}
	}
	var workers errgroup.Group
	// Each worker is one kubectl process at a time.
	workers.SetLimit(max(f.Parallel, 1))
	for i := range members {
		if failed[i] != nil {
			continue
		}
		workers.Go(func() error {
			failed[i] = f.within(ctx, i, ask)
			return nil
		})
	}
	_ = workers.Wait() // failed has the errors
	return failed
}

// within asks one member, and waits for its answer until the timeout.
func (f *Fleet) within(ctx context.Context, i int, ask func(ctx context.Context, i int) error) error {
	// The members that wait for a worker are not asked any more.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, errNoAnswer(f.Timeout))
	defer cancel()
	return ask(ctx, i)
}
