package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Run serves and registers the resource until ctx is cancelled, which is no
// error; it never gives up. On the way out streams end before the socket goes,
// so that the kubelet sees all devices Unhealthy at once.
func (p *Plugin) Run(ctx context.Context) error {
	p.setStatus(Status{Reason: "not registered yet"})
	defer p.setStatus(Status{Reason: "stopped"})
	var (
		pace  pace
		tried uint64 // generation of kubelet.sock that was tried last
		last  result // how the registration before this one ended
	)
	last.ended = CauseStart
	for ctx.Err() == nil {
		kubelet, changed := p.watch.Kubelet()
		if !kubelet.Present {
			p.setStatus(Status{Reason: "the kubelet's socket does not exist"})
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if kubelet.Generation != tried {
			tried = kubelet.Generation
			pace.reset()
		}
		r := p.once(ctx, last)
		if ctx.Err() != nil {
			break
		}
		if r.generation != 0 {
			tried = r.generation
		}
		delay := pace.next(r, time.Since(kubelet.Since))
		if r.err != nil {
			p.refused(r, delay)
		} else {
			last = r
			p.setStatus(Status{Reason: r.ended.words()})
			p.log.Info("registration ended", "reason", string(r.ended))
		}
		p.watch.await(ctx, tried, delay)
	}
	return nil
}

// words says what ended a registration.
func (c Cause) words() string {
	switch c {
	case CauseKubelet:
		return "the kubelet was restarted"
	case CauseStreamEnded:
		return "the kubelet ended the stream"
	case CauseSocketRemoved:
		return "the resource's own socket was removed"
	case CauseInstanceGone:
		return "another instance, which had registered later, is gone"
	case CauseNoStream:
		return "the kubelet accepted the registration and then asked for no list"
	default:
		return "the resource's own server failed"
	}
}

// refused says once that and why there is no registration, and again when the
// reason changes.
func (p *Plugin) refused(r result, delay time.Duration) {
	if !r.connected {
		// That is a kubelet which is down or just coming up.
		if delay > retryFast && p.setStatus(Status{Reason: r.err.Error()}) {
			p.log.Info("waiting for the kubelet", "reason", r.err)
		}
		return
	}
	if p.hooks.Refused != nil {
		p.hooks.Refused(r.err)
	}
	// Every attempt has a socket of its own: its name would make each reason
	// a new one.
	reason := r.err.Error()
	if r.socket != "" {
		reason = strings.ReplaceAll(reason, r.socket, "gdp-*.sock")
	}
	if p.setStatus(Status{Reason: reason}) {
		p.log.Warn("registration failed", "reason", reason)
	}
}

// registered says that the kubelet has the resource and its first list.
func (p *Plugin) registered(cause Cause, took time.Duration) {
	p.setStatus(Status{Registered: true})
	p.log.Info("registered", "reason", string(cause), "duration_seconds", took.Seconds())
	if p.hooks.Registered != nil {
		p.hooks.Registered(cause, took)
	}
}

// result is how one attempt, or the registration that came of it, ended.
type result struct {
	// ended is what ended a registration; err why there was none.
	ended Cause
	err   error
	// connected: the kubelet took the connection.
	connected bool
	// generation of the kubelet that was connected to; 0 where none was.
	generation uint64
	// socket is the name of the own socket.
	socket string
	// abandoned: the Register call was not answered when it ended. The kubelet
	// may be about to undo it still, by the name of the resource, and with it
	// whatever has that name by then.
	abandoned bool
	// lived is how long the registration did.
	lived time.Duration
}

// once connects to the kubelet, serves on a fresh socket, registers it and stays
// until that registration is over. When it returns the server is down, its
// streams have ended and its socket is gone.
//
// The connection comes first: a kubelet that starts removes all sockets before
// it makes its own, so a socket made after the connection is safe from it.
func (p *Plugin) once(ctx context.Context, last result) (r result) {
	began := time.Now()
	conn, err := dialKubelet(ctx, p.watch.socket)
	// The event that tells of a new socket may still be on its way.
	kubelet, changed := p.watch.look()
	if err != nil {
		r.err = fmt.Errorf("connect to the kubelet: %w", err)
		return r
	}
	defer conn.Close()
	r.connected, r.generation = true, kubelet.Generation
	cause := last.ended
	if last.generation != 0 && last.generation != r.generation {
		cause = CauseKubelet
	}

	socket, err := listen(p.watch.dir, p.resource)
	if err != nil {
		r.err = err
		return r
	}
	defer socket.remove()
	r.socket = socket.name
	own := p.watch.own(socket)
	defer p.watch.forget(own)
	s := p.serve(socket)
	defer s.stop()

	registering, cancel := context.WithTimeout(ctx, p.timing.register)
	answer := make(chan error, 1)
	go func() {
		answer <- register(registering, conn, p.resource, socket.name)
		cancel() // no timer fires in a session that lives
	}()
	answered, announced := false, false
	defer func() {
		cancel()
		if r.abandoned = !answered; r.abandoned {
			<-answer
		}
		r.lived = time.Since(began)
	}()

	var patience, alone, probe <-chan time.Time
	opened, listed := s.opened, s.listed
	for {
		select {
		case <-ctx.Done():
			return r
		case err := <-answer:
			answered = true
			if err != nil {
				r.err = fmt.Errorf("register: %w", err)
				return r
			}
			answer = nil
			if opened != nil {
				patience = time.After(p.timing.stream)
			}
		case <-opened:
			opened, patience = nil, nil
		case <-listed:
			listed = nil
		case <-patience:
			r.ended = CauseNoStream
			return r
		case <-s.ended:
			r.ended = CauseStreamEnded
			return r
		case <-own.gone:
			r.ended = CauseSocketRemoved
			return r
		case <-own.joined:
			probe = time.After(p.timing.probe)
		case <-probe:
			// An instance that is killed tells nobody. This goes on for as long
			// as there is another one: the seconds of a rolling update.
			p.watch.probe(own)
			if probe = nil; !p.watch.newest(own) {
				probe = time.After(p.timing.probe)
			}
		case <-own.left:
			alone = time.After(p.timing.alone)
		case <-alone:
			if p.watch.newest(own) {
				r.ended = CauseInstanceGone
				return r
			}
		case <-s.served:
			p.log.Warn("server failed", "reason", s.err)
			r.ended = CauseServerFailed
			return r
		case <-changed:
			kubelet, changed = p.watch.Kubelet()
			if kubelet.Present && kubelet.Generation != r.generation {
				r.ended = CauseKubelet
				return r
			}
		}
		if answered && listed == nil && !announced {
			announced = true
			p.registered(cause, time.Since(began))
		}
	}
}
