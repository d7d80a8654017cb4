package plugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet"
)

// Cause is why a resource was registered.
type Cause string

// The causes of a registration.
const (
	CauseStart         Cause = "start"           // the first one
	CauseKubelet       Cause = "kubelet_restart" // kubelet.sock is a new one
	CauseStreamEnded   Cause = "stream_ended"    // the kubelet ended ListAndWatch
	CauseSocketRemoved Cause = "socket_removed"  // the own socket is gone
	CauseNoStream      Cause = "no_stream"       // accepted, but ListAndWatch did not come
	CauseServerFailed  Cause = "server_failed"   // the own server stopped accepting
)

// causeReasons are the ends of a registration for an administrator.
var causeReasons = map[Cause]string{
	CauseKubelet:       "the kubelet was restarted",
	CauseStreamEnded:   "the kubelet ended the stream",
	CauseSocketRemoved: "the resource's own socket was removed",
	CauseNoStream:      "the kubelet accepted the registration and opened no stream",
	CauseServerFailed:  "the resource's own server failed",
}

// registration is the outcome of one attempt.
type registration struct {
	// ended is why the registration ended and the next one begins.
	ended Cause
	// err is why there was no registration, nil if there was one.
	err error
	// generation is the generation of the kubelet's socket, 0 if there was no connection.
	generation uint64
	// abandoned is set if the Register call was cancelled. The kubelet may still undo it, by
	// the name of the resource, and with it the next registration. It keeps following the stream of
	// that one, but does not notice its end: the devices stay Healthy after the program.
	abandoned bool
	// lived is how long the attempt and the registration took together.
	lived time.Duration
}

// keepRegistered connects to the kubelet, serves on a fresh socket, registers it and
// returns when that registration has ended: the server is down, its streams have
// ended and its socket is removed.
//
// The connection comes first: a kubelet that starts removes all sockets before
// it makes its own, so a socket made after the connection is safe from it.
func (p *Plugin) keepRegistered(ctx context.Context, last registration) (r registration) {
	began := time.Now()
	conn, err := p.Watch.connect(ctx)
	if err != nil {
		r.err = fmt.Errorf("connect to the kubelet: %w", err)
		return r
	}
	r.generation = conn.generation
	cause := last.ended
	if last.generation != 0 && last.generation != r.generation {
		cause = CauseKubelet
	}

	own, err := kubelet.Listen(p.Watch.dir, p.Resource)
	if err != nil {
		r.err = err
		return r
	}
	defer own.Remove()
	s := p.serve(own.Listener)
	defer s.stop()

	// The end of the program does not cancel the call at once, see follow.
	registering, cancel := context.WithTimeout(context.WithoutCancel(ctx), registerWithin)
	answered := make(chan error, 1) // closed after the answer
	go func() {
		defer close(answered)
		err := conn.register(registering, p.Resource, own.Name)
		cancel() // no timer fires in a registration that lives
		answered <- err
	}()
	r.ended, r.err = p.follow(ctx, s, own, r.generation, answered, func() {
		p.registered(cause, time.Since(began))
	})
	select {
	case <-answered:
	default:
		r.abandoned = true
		cancel()
		<-answered
	}
	r.lived = time.Since(began)
	return r
}

// follow returns why a registration with a generation of the kubelet ended, or the error
// with which the Register call was answered. It calls registered when the kubelet has
// accepted the resource and has its first list.
//
// At the end of ctx, a registration that has begun may complete. The kubelet takes the resource from
// an older registration before it connects. If it then cannot connect, it forgets the resource, and
// the stream of the other instance stays open: when that instance ends, its devices stay Healthy
// (connectClient and PluginDisconnected, pkg/kubelet/cm/devicemanager).
func (p *Plugin) follow(
	ctx context.Context,
	s *server,
	own *kubelet.Socket,
	generation uint64,
	answered <-chan error,
	registered func(),
) (ended Cause, err error) {
	var (
		listed  = s.listed.happened // nil once the kubelet has the first list
		timeout <-chan time.Time    // for the stream, once the resource was accepted
		hungUp  <-chan struct{}     // the kubelet disconnected before the first list

		ending    = ctx.Done()     // nil once it has ended
		completed <-chan time.Time // the end of the time for the first list after ctx has ended
	)
	for {
		kubelet, changed := p.Watch.Kubelet()
		if kubelet.Present && kubelet.Generation != generation {
			return CauseKubelet, nil
		}
		if !own.Present() {
			return CauseSocketRemoved, nil
		}
		select {
		case <-ending:
			if listed == nil {
				return "", nil
			}
			ending = nil
			completed = time.After(completeWithin)
		case <-completed:
			return "", nil
		case err := <-answered:
			if err != nil {
				return "", err
			}
			answered = nil // accepted
			if listed == nil {
				registered()
				continue
			}
			timeout = time.After(p.timing.stream)
			if s.optionsSent.Load() { // over the connection of the later stream
				hungUp = s.conns.unused()
			}
		case <-listed:
			listed = nil
			timeout = nil
			hungUp = nil
			if ctx.Err() != nil {
				return "", nil
			}
			if answered == nil {
				registered()
			}
		case <-timeout:
			if !s.streaming.Load() { // a long list may take longer
				return CauseNoStream, nil
			}
		case <-hungUp:
			return CauseNoStream, nil
		case <-s.streamEnded.happened:
			return CauseStreamEnded, nil
		case <-s.stopped:
			p.Log.Warn("server failed", "err", s.err)
			return CauseServerFailed, nil
		case <-changed:
		}
	}
}

const (
	// fastWindow is how long a new kubelet.sock may refuse connections before
	// that counts as a failure: bind(2) makes the file, listen(2) follows.
	// After a boot the first pods are admitted some 40 ms later.
	fastWindow = 200 * time.Millisecond
	// retryFast is the delay between attempts in that window, and after the end of a
	// registration: the kubelet closes the connection a few instructions before it forgets
	// the client.
	retryFast = time.Millisecond
	// retryAbandoned is the delay after a Register call without an answer.
	retryAbandoned = 100 * time.Millisecond
	// retryMin and retryMax bound the delay after a failure.
	retryMin = 10 * time.Millisecond
	retryMax = 5 * time.Second
	// steady is how long a registration must live to reset the backoff.
	steady = 10 * time.Second
)

// backoff spaces out attempts to register. The first attempt is immediate. The delay doubles
// with each failure.
type backoff struct{ tries int }

// reset makes the next attempt immediate.
func (b *backoff) reset() {
	b.tries = 0
}

// next returns the delay after an attempt. age is the age of the kubelet's socket.
func (b *backoff) next(r registration, age time.Duration) time.Duration {
	if r.generation == 0 && age < fastWindow {
		return retryFast
	}
	if r.err == nil && r.lived >= steady {
		b.reset()
	}
	b.tries++
	if b.tries == 1 {
		if r.abandoned {
			return retryAbandoned
		}
		return retryFast
	}
	d := retryMax
	doublings := b.tries - 2
	if doublings < 10 { // further ones would overflow
		d = min(d, retryMin<<doublings)
	}
	// Jitter separates resources.
	return d - rand.N(d/4)
}
