package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/internal/kubelet/podsapi"
)

// endedPods follows the ends of the node's pods, so that a device that a pod releases is offered at
// once. It has a connection to the kubelet only while something waits until no container holds it:
// at other times the events of pods are of no interest, and cost nothing. The loop owns its fields.
type endedPods struct {
	// socket is the kubelet's socket. Empty means none.
	socket string
	// released gets a value when a pod has ended, or may have ended before the watch began.
	released signal
	// stop ends the watch, and is nil without one.
	stop context.CancelFunc
	// over is closed when the watch has ended. It is nil before the first one.
	over chan struct{}
}

func newEndedPods(paths Paths, released signal) endedPods {
	return endedPods{
		socket:   podsapi.Socket(paths.PodResources),
		released: released,
	}
}

// watch begins to watch, unless a watch runs. A kubelet without the API, or one that is about to
// start, ends the watch at once. The caller therefore repeats the call.
func (e *endedPods) watch(ctx context.Context, group *errgroup.Group, end func(err error)) {
	if e.socket == "" || e.isRunning() {
		return
	}
	e.end()
	ctx, e.stop = context.WithCancel(ctx)
	over := make(chan struct{})
	e.over = over
	group.Go(func() error {
		defer close(over)
		end(podsapi.Watch(ctx, e.socket, e.released.send))
		return nil
	})
}

// isRunning reports whether a watch runs.
func (e *endedPods) isRunning() bool {
	if e.stop == nil {
		return false
	}
	select {
	case <-e.over:
		return false
	default:
		return true
	}
}

// end ends the watch, if there is one.
func (e *endedPods) end() {
	if e.stop != nil {
		e.stop()
		e.stop = nil
	}
}
