package plugin

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/kubelet/dialed"
)

// kubeletConn is a connection to the kubelet, shared by all plugins that are
// registering.
type kubeletConn struct {
	client     *grpc.ClientConn
	conn       net.Conn
	generation uint64
	users      int         // guarded by KubeletWatch.connMu
	closed     atomic.Bool // by either side
}

// connect returns the connection to the kubelet, for use until release.
func (w *KubeletWatch) connect(ctx context.Context) (*kubeletConn, error) {
	w.connMu.Lock()
	defer w.connMu.Unlock()
	w.check(kubeletSocket)
	if kubelet, _ := w.Kubelet(); w.conn == nil || w.conn.closed.Load() || w.conn.generation != kubelet.Generation {
		c, err := w.dial(ctx)
		if err != nil {
			return nil, err
		}
		w.conn = c
	}
	w.conn.users++
	return w.conn, nil
}

func (w *KubeletWatch) dial(ctx context.Context) (*kubeletConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", w.socketPath)
	if err != nil {
		return nil, err
	}
	w.check(kubeletSocket) // the event of a new socket may be pending
	kubelet, _ := w.Kubelet()
	c := &kubeletConn{conn: conn, generation: kubelet.Generation}
	c.client, err = dialed.Client(&openConn{conn, func() {
		c.closed.Store(true)
	}},
		grpc.WithReadBufferSize(readBuffer), grpc.WithWriteBufferSize(writeBuffer))
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// release closes a connection after its last use.
func (w *KubeletWatch) release(c *kubeletConn) {
	w.connMu.Lock()
	defer w.connMu.Unlock()
	if c.users--; c.users > 0 {
		return
	}
	if w.conn == c {
		w.conn = nil
	}
	_ = c.client.Close()
	_ = c.conn.Close()
}

// connectAhead connects to the kubelet while the host is scanned, and holds the connection
// for a second, for the first registrations.
func (w *KubeletWatch) connectAhead(ctx context.Context) {
	conn, err := w.connect(ctx)
	if err != nil {
		return // no kubelet yet
	}
	defer w.release(conn)
	conn.client.Connect()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
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
		// Every attempt has a fresh socket name, which would make each reason differ.
		return errors.New("register: " + strings.ReplaceAll(status.Convert(err).Message(), endpoint, "gdp-*.sock"))
	}
	return nil
}

// connListener counts the open connections that it accepted.
type connListener struct {
	net.Listener
	mu   sync.Mutex
	open int
	idle chan struct{} // closed while none is open
}

func newConnListener(l net.Listener) *connListener {
	idle := make(chan struct{})
	close(idle)
	return &connListener{Listener: l, idle: idle}
}

func (l *connListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open++; l.open == 1 {
		l.idle = make(chan struct{})
	}
	return &openConn{Conn: c, closed: sync.OnceFunc(l.closed)}, nil
}

func (l *connListener) closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open--; l.open == 0 {
		close(l.idle)
	}
}

// unused returns a channel that is closed when no connection is open.
func (l *connListener) unused() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle
}

// openConn calls closed when it is closed. gRPC closes a connection that the other side
// has closed.
type openConn struct {
	net.Conn
	closed func()
}

func (c *openConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
