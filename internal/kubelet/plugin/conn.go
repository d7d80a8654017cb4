package plugin

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/kubelet"
)

// kubeletConn is a connection to the kubelet, shared by all plugins of the process: with 100 resources, one for
// each would take 4 MB and a fifth of the time until the lists are there.
type kubeletConn struct {
	client *grpc.ClientConn
	// generation is the generation of the socket that was dialed.
	generation uint64
	closed     atomic.Bool // by either side
}

// isCurrent reports whether the connection leads to the kubelet that runs now.
func (c *kubeletConn) isCurrent(kubelet KubeletSocket) bool {
	return c != nil && !c.closed.Load() && c.generation == kubelet.Generation
}

// connect returns the connection to the kubelet that runs now. It stays open until the kubelet ends.
func (w *KubeletWatch) connect(ctx context.Context) (*kubeletConn, error) {
	w.connMu.Lock()
	defer w.connMu.Unlock()
	w.checkKubelet()
	current, _ := w.Kubelet()
	if w.conn.isCurrent(current) {
		return w.conn, nil
	}
	if w.conn != nil {
		_ = w.conn.client.Close()
		w.conn = nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", w.socketPath)
	if err != nil {
		return nil, err
	}
	w.checkKubelet() // the event of a new socket may be pending
	current, _ = w.Kubelet()
	c := &kubeletConn{generation: current.Generation}
	open := &openConn{
		Conn: conn,
		closed: func() {
			c.closed.Store(true)
		},
	}
	c.client, err = kubelet.Connect(open,
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithWriteBufferSize(writeBuffer),
	)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.client.Connect()
	w.conn = c
	return c, nil
}

// Close closes the connection to the kubelet, after all plugins have ended.
func (w *KubeletWatch) Close() {
	w.connMu.Lock()
	defer w.connMu.Unlock()
	if w.conn != nil {
		_ = w.conn.client.Close()
		w.conn = nil
	}
}

// register registers a resource. endpoint is the file name of its socket in the kubelet's
// directory. The kubelet responds after it has connected to that socket.
func (c *kubeletConn) register(ctx context.Context, resource, endpoint string) error {
	kubelet := v1beta1.NewRegistrationClient(c.client)
	_, err := kubelet.Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
		Options:      pluginOptions(),
	})
	if err == nil {
		return nil
	}
	// Every attempt has a fresh socket name, which would make each reason differ.
	reason := status.Convert(err).Message()
	reason = strings.ReplaceAll(reason, endpoint, "gdp-*.sock")
	return errors.New("register: " + reason)
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
	return &connListener{
		Listener: l,
		idle:     idle,
	}
}

// Accept accepts a connection and counts it.
func (l *connListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	if l.open == 1 {
		l.idle = make(chan struct{})
	}
	open := &openConn{
		Conn:   c,
		closed: sync.OnceFunc(l.closed),
	}
	return open, nil
}

// closed counts the end of a connection.
func (l *connListener) closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.open == 0 {
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

// Close closes the connection.
func (c *openConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
