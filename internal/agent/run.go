package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/internal/agent/configuration"
)

// phases are the two phases of an instance. At the end of the program, first the passes end, and then,
// after a successor has taken over, the answers. The status page belongs to the second phase.
type phases struct {
	passing   *tasks
	answering *tasks
	// stop ends both phases.
	stop context.CancelFunc
	// group runs all tasks. If one fails, both phases end.
	group *errgroup.Group
}

// newPhases returns phases of which the first one ends with ctx.
func newPhases(ctx context.Context) phases {
	answering, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, answering := errgroup.WithContext(answering)
	passing, stopPassing := context.WithCancel(answering)
	context.AfterFunc(ctx, stopPassing)
	return phases{
		passing:   &tasks{ctx: passing, group: group},
		answering: &tasks{ctx: answering, group: group},
		stop:      stop,
		group:     group,
	}
}

// tasks are the goroutines of a phase.
type tasks struct {
	// ctx ends the phase.
	ctx     context.Context
	group   *errgroup.Group
	running sync.WaitGroup
}

// Go runs a task that belongs to the phase.
func (t *tasks) Go(run func(ctx context.Context) error) {
	t.running.Add(1)
	t.group.Go(func() error {
		defer t.running.Done()
		return run(t.ctx)
	})
}

// Run serves until ctx is cancelled. It first waits while another instance serves. In the end it saves the
// state, answers the kubelet until a successor has registered, ends all streams, removes its sockets and
// returns nil, within a second without a successor. Links and specs stay: containers that restart
// during an upgrade need them. If it returns an error, goroutines may still run: the process should
// end.
func (a *Agent) Run(ctx context.Context) error {
	a.log.Info("starting",
		"version", a.options.Version,
		"config", a.options.configName(),
		"resources", len(a.found.reading.Config.Resources),
	)
	defer a.log.Info("stopped")
	life := newPhases(ctx)
	defer life.stop()
	if a.page.listener != nil {
		life.answering.Go(func(ctx context.Context) error {
			return a.page.metrics.Serve(ctx, a.page.listener)
		})
	}
	if a.options.hasKubelet() {
		life.answering.Go(a.kubelet.Run)
	}
	var l *loop
	hasTurn := make(chan struct{})
	life.passing.Go(func(ctx context.Context) error {
		if a.standBy(ctx) == nil {
			close(hasTurn)
		}
		return nil
	})
	// A read of standBy may hang. It does not begin the loop then.
	select {
	case <-life.passing.ctx.Done():
	case <-hasTurn:
		l = a.serve(life)
	}
	select {
	case <-a.page.stuck:
		return errStuck
	// This also ends when a task has failed.
	case <-life.passing.ctx.Done():
	}
	limit := endWithin
	hasFailed := life.answering.ctx.Err() != nil
	isHandover := l != nil && !hasFailed && a.turn.isTaken(waits)
	if isHandover {
		limit += handoverWithin + drainWithin + answeredWithin + endStreamsWithin
	}
	// Capacity 1: the goroutine can end even if Run has returned before.
	ended := make(chan error, 1)
	go func() {
		ended <- a.end(life, l, isHandover)
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
	}
	// Something blocks in the kernel, and cannot be interrupted.
	if l != nil {
		l.abandon()
	}
	// It is context.Canceled at the normal end, and otherwise the error of the task that failed.
	cause := context.Cause(life.answering.ctx)
	if errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

// stuckAfter is how long one pass of the loop may take. A pass takes milliseconds, and everything
// that may hang has a timeout, which add up to two seconds. While a pass hangs, a removed device is
// still listed as healthy.
const stuckAfter = time.Minute

var errStuck = fmt.Errorf("the main loop was stuck in one pass for %s: the program ends, so that it is started again", stuckAfter)

const (
	// endWithin is how long Run waits for everything that it started. A read of the host may block
	// forever, and the kubelet kills the pod after its grace period.
	endWithin = 800 * time.Millisecond
	// lastSave is how long Run then waits for the disk of the state.
	lastSave = 100 * time.Millisecond
)

// serve begins to serve. This instance has the right to write.
func (a *Agent) serve(life phases) *loop {
	// The loop is made before any goroutine starts: it continues with what New has found.
	l := newLoop(a, life)
	if a.options.hasKubelet() {
		life.passing.Go(func(context.Context) error {
			a.sweep()
			return nil
		})
		life.answering.Go(func(ctx context.Context) error {
			return a.book.Run(ctx, a.kubelet.Checkpoint)
		})
	}
	life.answering.Go(a.succeed)
	life.passing.Go(a.host.watcher.Run)
	life.passing.Go(a.reader.Files.Run)
	life.passing.Go(a.reader.Run)
	life.passing.Go(l.run)
	return l
}

// end waits for everything that Run started, and saves the state. The rights are released last,
// unless a successor waits for them. l is nil if this instance has not served.
func (a *Agent) end(life phases, l *loop, isHandover bool) error {
	life.passing.running.Wait()
	if isHandover {
		l.finish()
		a.handOver(life.answering.ctx)
	}
	life.stop()
	err := life.group.Wait()
	a.kubelet.Close()
	switch {
	case isHandover || a.turn.isLost(): // the files belong to another instance
	case l == nil:
		_ = a.reader.End(&configuration.Trial{}) // no configuration was served
	default:
		l.finish()
	}
	a.reader.Wait()
	a.turn.close()
	return err
}
