package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Clients may be hostile. These limits bound memory and files to about 10 MiB, most of it buffers of
// the kernel, and to 65 files.
const (
	// maxConns is the maximum number of open connections.
	maxConns = 64
	// maxRequest bounds how much is read from a connection: one request without a body.
	maxRequest = 8 << 10
	// connTime is the time for reading a request, and for sending its response.
	connTime = 10 * time.Second
	// minAge is how old a connection is at least when it is closed for another one. A probe that
	// has arrived is answered before.
	minAge = 50 * time.Millisecond
	// sendBuffer is the kernel's memory for a response, which counts as the container's.
	sendBuffer = 64 << 10
)

// Listen opens the listener, so that an unusable address fails before anything is
// served. The error names the flag.
func Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{Control: limitSockets}
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// limitedListener is a listener with at most maxConns open connections. Another connection closes
// the oldest one.
type limitedListener struct {
	net.Listener
	// closed has an element after a connection was closed.
	closed chan struct{}

	mu   sync.Mutex
	open []*conn // the oldest first
}

func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{
		TCPConn:  accepted.(*net.TCPConn),
		listener: l,
		since:    time.Now(),
		left:     maxRequest,
	}
	for !l.add(c) {
		select {
		case <-l.closed:
		case <-time.After(minAge):
		}
	}
	return c, nil
}

// add adds a connection, and closes the oldest one if there is no room. It reports false if that one
// is too young.
func (l *limitedListener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxConns {
		oldest := l.open[0]
		if time.Since(oldest.since) < minAge {
			return false
		}
		oldest.reset()
		l.open = slices.Delete(l.open, 0, 1)
	}
	l.open = append(l.open, c)
	return true
}

// conn is a connection for one request.
type conn struct {
	*net.TCPConn
	listener *limitedListener
	since    time.Time
	// left is the number of bytes that may be read.
	left int
	// cancel ends the request. Only the goroutine that accepts uses it.
	cancel context.CancelFunc
}

// reset closes the connection, and ends its request. The kernel drops what the client has not read.
func (c *conn) reset() {
	c.cancel()
	_ = c.SetLinger(0)
	_ = c.TCPConn.Close()
}

// errTooLong makes the server close a connection without a response: it is an error of reading from
// the network, see isCommonNetReadError in net/http/server.go. After its own limits the server
// would sleep for half a second (closeWriteAndWait), so that a flood would take memory.
var errTooLong = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("the request is longer than 8 KiB")}

// Read fails after maxRequest bytes.
func (c *conn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errTooLong
	}
	n, err := c.TCPConn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func (c *conn) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.mu.Unlock()
	select {
	case l.closed <- struct{}{}:
	default:
	}
	return c.TCPConn.Close()
}
