package plugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Cause is why a resource was registered.
type Cause string

// The causes of a registration.
const (
	CauseStart         Cause = "start"           // the first one
	CauseKubelet       Cause = "kubelet_restart" // kubelet.sock was made anew
	CauseStreamEnded   Cause = "stream_ended"    // the kubelet ended ListAndWatch
	CauseSocketRemoved Cause = "socket_removed"  // the own socket is gone
	CauseInstanceGone  Cause = "instance_gone"   // another instance registered later, and ended
	CauseNoStream      Cause = "no_stream"       // accepted, but ListAndWatch never came
	CauseServerFailed  Cause = "server_failed"   // the own server stopped accepting
)

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

// registration is one attempt, and how it, or what came of it, ended.
type registration struct {
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

// register connects to the kubelet, serves on a fresh socket, registers it and stays
// until that registration is over. When it returns the server is down, its
// streams have ended and its socket is gone.
//
// The connection comes first: a kubelet that starts removes all sockets before
// it makes its own, so a socket made after the connection is safe from it.
func (p *Plugin) register(ctx context.Context, last registration) (r registration) {
	began := time.Now()
	conn, err := p.watch.connect(ctx)
	if err != nil {
		r.err = fmt.Errorf("connect to the kubelet: %w", err)
		return r
	}
	r.connected, r.generation = true, conn.generation
	cause := last.ended
	if last.generation != 0 && last.generation != r.generation {
		cause = CauseKubelet
	}

	socket, err := listen(p.watch.dir, p.resource)
	if err != nil {
		p.watch.release(conn)
		r.err = err
		return r
	}
	defer socket.remove()
	r.socket = socket.name
	own := p.watch.own(socket)
	defer p.watch.forget(own)
	s := p.serve(socket.listener)
	defer s.stop()

	registering, cancel := context.WithTimeout(ctx, p.timing.register)
	answer := make(chan error, 1)
	go func() {
		err := conn.register(registering, p.resource, socket.name)
		p.watch.release(conn)
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

	var patience, alone, probe <-chan time.Time
	opened, listed := s.opened, s.listed
	for {
		kubelet, changed := p.watch.Kubelet()
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
		}
		if answered && listed == nil && !announced {
			announced = true
			p.registered(cause, time.Since(began))
		}
	}
}

// kubeletConn is a connection to the kubelet. Plugins that register at the same
// time share one.
type kubeletConn struct {
	client     *grpc.ClientConn
	conn       net.Conn
	generation uint64
	users      int         // guarded by KubeletWatch.connecting
	closed     atomic.Bool // by either side
}

// errSpent is what a connection that ended is answered with.
var errSpent = errors.New("the connection to the kubelet has ended")

// connect returns the connection to the kubelet, which is there until release.
func (w *KubeletWatch) connect(ctx context.Context) (*kubeletConn, error) {
	w.connecting.Lock()
	defer w.connecting.Unlock()
	if kubelet, _ := w.look(); w.conn == nil || w.conn.closed.Load() || w.conn.generation != kubelet.Generation {
		// By hand, since a gRPC client that is refused once waits for a second
		// before it tries again.
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", w.socket)
		if err != nil {
			return nil, err
		}
		kubelet, _ = w.look() // the event for a new socket may still be on its way
		c := &kubeletConn{conn: conn, generation: kubelet.Generation}
		if c.client, err = c.newClient(); err != nil {
			_ = conn.Close()
			return nil, err
		}
		w.conn = c
	}
	w.conn.users++
	return w.conn, nil
}

// release closes a connection when nobody uses it any more.
func (w *KubeletWatch) release(c *kubeletConn) {
	w.connecting.Lock()
	defer w.connecting.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	if w.conn == c {
		w.conn = nil
	}
	_ = c.client.Close()
	_ = c.conn.Close()
}

func (c *kubeletConn) newClient() (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///kubelet",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errSpent
			}
			return &openConn{c.conn, func() { c.closed.Store(true) }}, nil
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithWriteBufferSize(writeBuffer),
	)
}

// register tells the kubelet that resource is served on the socket endpoint, a file
// name in the kubelet's directory. The kubelet answers after it has connected to
// that socket.
func (c *kubeletConn) register(ctx context.Context, resource, endpoint string) error {
	_, err := v1beta1.NewRegistrationClient(c.client).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
		Options:      pluginOptions(),
	})
	if s, ok := status.FromError(err); ok && err != nil {
		return &refusal{s}
	}
	return err
}

// refusal is a gRPC status as an administrator wants to read it.
type refusal struct{ status *status.Status }

func (r *refusal) Error() string              { return r.status.Message() }
func (r *refusal) GRPCStatus() *status.Status { return r.status }

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
	// retryFast is the pause between attempts in that window, and after a
	// registration's end: the kubelet closes the connection a few instructions
	// before it is done with the client.
	retryFast = time.Millisecond
	retryMin  = 10 * time.Millisecond
	retryMax  = 5 * time.Second
	// retryAbandoned is the pause after a Register call without an answer.
	retryAbandoned = 100 * time.Millisecond
	// steady is how long a registration must live to count as a good one.
	steady = 10 * time.Second
)

// backoff spaces out attempts to register: at once when there is reason to, slower
// and slower when that does not help.
type backoff struct{ tries int }

func (b *backoff) reset() { b.tries = 0 }

// next is the pause after an attempt, made age after the kubelet's socket was.
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
	// Several resources, and several instances in a rolling update, must not
	// keep step.
	return d - rand.N(d/4)
}
