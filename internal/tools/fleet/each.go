package fleet

import (
	"context"
	"errors"
	"sync"
)

// each calls ask for each member, several at the same time, and returns why members have not
// answered, in their order. A member that cannot be asked is an error without a call. No member
// delays the others for longer than the timeout. ask is called concurrently, with an index of
// members and a context that ends at the timeout.
func (f *Fleet) each(ctx context.Context, members []Member, ask func(ctx context.Context, i int) error) []error {
	// Each worker writes only the elements of its members.
	failed := make([]error, len(members))
	var asked []int
	for i := range members {
		if problem := members[i].Problem; problem != "" {
			failed[i] = errors.New(problem)
		} else {
			asked = append(asked, i)
		}
	}
	next := make(chan int)
	answered := make(chan int)
	var workers sync.WaitGroup
	// Each worker is one kubectl process at a time.
	for range min(max(f.Parallel, 1), len(asked)) {
		workers.Go(func() {
			for i := range next {
				failed[i] = f.within(ctx, i, ask)
				answered <- i
			}
		})
	}
	go func() {
		for _, i := range asked {
			next <- i
		}
		close(next)
		workers.Wait()
		close(answered)
	}()
	// Progress is called in this goroutine only, so it needs no lock.
	f.report(0, len(asked))
	count := 0
	for range answered {
		count++
		f.report(count, len(asked))
	}
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

// report reports the progress, if anybody wants it.
func (f *Fleet) report(answered, all int) {
	if f.Progress != nil {
		f.Progress(answered, all)
	}
}
