package plugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Cause is why a resource was registered.
type Cause string

// The causes of a registration.
const (
	CauseStart         Cause = "start"           // the first one
	CauseKubelet       Cause = "kubelet_restart" // kubelet.sock is a new one
	CauseStreamEnded   Cause = "stream_ended"    // the kubelet ended ListAndWatch
	CauseSocketRemoved Cause = "socket_removed"  // the own socket is gone
	CauseInstanceGone  Cause = "instance_gone"   // an instance that registered later ended
	CauseNoStream      Cause = "no_stream"       // accepted, but ListAndWatch did not come
	CauseServerFailed  Cause = "server_failed"   // the own server stopped accepting
)

// causeReasons are the ends of a registration for an administrator.
var causeReasons = map[Cause]string{
	CauseKubelet:       "the kubelet was restarted",
	CauseStreamEnded:   "the kubelet ended the stream",
	CauseSocketRemoved: "the resource's own socket was removed",
	CauseInstanceGone:  "an instance that had registered later is gone",
	CauseNoStream:      "the kubelet accepted the registration and opened no stream",
	CauseServerFailed:  "the resource's own server failed",
}

// registration is the outcome of one attempt.
type registration struct {
	// ended is why the registration ended; err why there was none.
	ended Cause
	err   error
	// connected: the kubelet accepted the connection.
	connected bool
	// generation of the kubelet's socket; 0 if there was no connection.
	generation uint64
	// abandoned: the Register call had no answer yet. The kubelet may still undo
	// it, by the name of the resource, and with it the next registration.
	abandoned bool
	lived     time.Duration
}

// register connects to the kubelet, serves on a fresh socket, registers it and
// returns when that registration has ended: the server is down, its streams have
// ended and its socket is removed.
//
// The connection comes first: a kubelet that starts removes all sockets before
// it makes its own, so a socket made after the connection is safe from it.
func (p *Plugin) register(ctx context.Context, last registration) (r registration) {
	began := time.Now()
	conn, err := p.Watch.connect(ctx)
	if err != nil {
		r.err = fmt.Errorf("connect to the kubelet: %w", err)
		return r
	}
	r.connected, r.generation = true, conn.generation
	cause := last.ended
	if last.generation != 0 && last.generation != r.generation {
		cause = CauseKubelet
	}

	socket, err := Listen(p.Watch.dir, p.Resource)
	if err != nil {
		p.Watch.release(conn)
		r.err = err
		return r
	}
	defer socket.Remove()
	own := p.Watch.own(socket)
	defer p.Watch.forget(own)
	s := p.serve(socket.Listener)
	defer s.stop()

	registering, cancel := context.WithTimeout(ctx, registerWithin)
	answer := make(chan error, 1)
	go func() {
		err := conn.register(registering, p.Resource, socket.name)
		p.Watch.release(conn)
		answer <- err
		cancel() // no timer fires in a registration that lives
	}()
	answered, announced := false, false
	defer func() {
		cancel()
		if r.abandoned = !answered; r.abandoned {
			<-answer
		}
		r.lived = time.Since(began)
	}()

	var (
		patience, alone, probe <-chan time.Time
		hungUp                 <-chan struct{} // before the first list
		newer                  bool            // another instance registered later
	)
	listed := s.listed
	checkNewer := func() {
		was := newer
		switch newer = p.Watch.hasNewer(own); {
		case newer:
			probe, alone = time.After(probeEvery), nil
		case was:
			probe, alone = nil, time.After(p.timing.alone)
		}
	}
	for {
		kubelet, changed := p.Watch.Kubelet()
		if kubelet.Present && kubelet.Generation != r.generation {
			r.ended = CauseKubelet
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case err := <-answer:
			answered = true
			if err != nil {
				// Every attempt has a fresh socket name, which would make each reason differ.
				r.err = errors.New("register: " + strings.ReplaceAll(err.Error(), socket.name, "gdp-*.sock"))
				return r
			}
			answer = nil
			if listed != nil {
				patience = time.After(p.timing.stream)
				if s.asked.Load() { // by the connection that the stream comes on
					hungUp = s.conns.unused()
				}
			}
		case <-hungUp:
			r.ended = CauseNoStream
			return r
		case <-listed:
			listed, patience, hungUp = nil, nil, nil
		case <-patience:
			r.ended = CauseNoStream
			return r
		case <-s.ended:
			r.ended = CauseStreamEnded
			return r
		case <-own.gone:
			r.ended = CauseSocketRemoved
			return r
		case <-own.others:
			checkNewer()
		case <-probe:
			// An instance that is killed makes no event. This goes on for as long
			// as there is another one: the seconds of a rolling update.
			checkNewer()
		case <-alone:
			r.ended = CauseInstanceGone
			return r
		case <-s.served:
			p.Log.Warn("server failed", "err", s.err)
			r.ended = CauseServerFailed
			return r
		case <-changed:
		}
		if answered && listed == nil && !announced {
			announced = true
			p.registered(cause, time.Since(began))
		}
	}
}

// register registers a resource that is served on the socket endpoint, a file name
// in the kubelet's directory. The kubelet answers after it has connected to it.
func (c *kubeletConn) register(ctx context.Context, resource, endpoint string) error {
	_, err := v1beta1.NewRegistrationClient(c.client).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
		Options:      pluginOptions(),
	})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// pluginOptions are the same for every resource. PreStartContainer would keep
// containers from restarting while this program is down.
func pluginOptions() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

const (
	// fastWindow is how long a new kubelet.sock may refuse connections before
	// that counts as a failure: bind makes the file, listen comes after it.
	// After a boot the first pods are admitted some 40 ms later.
	fastWindow = 200 * time.Millisecond
	// retryFast is the delay between attempts in that window, and after a
	// registration's end: the kubelet closes the connection a few instructions
	// before it forgets the client.
	retryFast = time.Millisecond
	retryMin  = 10 * time.Millisecond
	retryMax  = 5 * time.Second
	// retryAbandoned is the delay after a Register call without an answer.
	retryAbandoned = 100 * time.Millisecond
	// steady is the lifetime that resets the backoff.
	steady = 10 * time.Second
)

// backoff spaces out attempts to register: the first is immediate, the delay after
// each failure doubles.
type backoff struct{ tries int }

func (b *backoff) reset() { b.tries = 0 }

// next is the delay after an attempt; age is that of the kubelet's socket.
func (b *backoff) next(r registration, age time.Duration) time.Duration {
	if !r.connected && age < fastWindow {
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
	if shift := b.tries - 2; shift < 10 {
		d = min(d, retryMin<<shift)
	}
	// Jitter, for several resources, and instances in a rolling update.
	return d - rand.N(d/4)
}
