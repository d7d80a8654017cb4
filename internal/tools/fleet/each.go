package fleet

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// each asks several members at the same time. It returns their answers and why members have not
// answered, both in the order of members. A member that cannot be asked is an error without a call. No
// member delays the others for longer than the timeout. ask is called concurrently, with a context that
// ends at the timeout. err is set if ctx has ended: the answers are not complete then.
func each[T any](ctx context.Context, f *Fleet, members []Member, ask func(context.Context, *Member) (T, error)) (answers []T, failed []error, err error) {
	// Each worker writes only the elements of its members.
	answers = make([]T, len(members))
	failed = make([]error, len(members))
	var workers errgroup.Group
	// Each worker is one kubectl process at a time.
	workers.SetLimit(max(f.Parallel, 1))
	for i := range members {
		if problem := members[i].Problem; problem != "" {
			failed[i] = errors.New(problem)
			continue
		}
		workers.Go(func() error {
			// The members that wait for a worker are not asked any more.
			if ctx.Err() != nil {
				return nil
			}
			ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, errNoAnswer(f.Timeout))
			defer cancel()
			answers[i], failed[i] = ask(ctx, &members[i])
			return nil
		})
	}
	_ = workers.Wait() // failed has the errors
	return answers, failed, context.Cause(ctx)
}
