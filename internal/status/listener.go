package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Clients may be hostile. These limits bound memory and files to about 10 MiB, most of it
// buffers of the kernel, and to 65 files.
const (
	// maxConns is the maximum number of open connections.
	maxConns = 64
	// maxRequest bounds how much is read from a connection: one request without a body.
	maxRequest = 8 << 10
	// connTime is the time from accept to close, for one request.
	connTime = 10 * time.Second
	// answerTime is how long a request whose header was read may take to be answered
	// before its connection may be closed for others. No probe waits longer.
	answerTime = 5 * time.Second
	// readTime is how long a connection without data stays open before it may be closed
	// for others. The kernel accepts connections with data, unless there are too many.
	readTime = 20 * time.Millisecond
	// sendBuffer and receiveBuffer are the kernel's memory for a connection, which
	// counts as the container's.
	sendBuffer    = 64 << 10
	receiveBuffer = maxRequest
)

// Listen opens the listener, so that an unusable address fails before anything is
// served. The error names the flag.
func Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAlive: -1, // no connection is idle for long
		Control:   deferAccept,
	}
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// deferAccept makes the kernel hold back a connection until its client has sent something, for at
// most a second, see TCP_DEFER_ACCEPT in tcp(7). Without it, connections without a request are
// accepted as fast as probes.
func deferAccept(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// If it fails, idle connections are accepted as well, which only costs time.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1)
	})
}

// limitedListener is a listener with at most maxConns open connections. To make room for
// another connection, it closes a connection that has not sent a whole request or that waits
// for a scrape: the oldest connection of the address that has the most. If there is none, it
// closes a connection whose request was answered.
//
// It closes neither a connection whose request was read and not yet answered, nor a
// connection from which nothing was read. If there are only such connections, the next one
// waits.
type limitedListener struct {
	net.Listener
	// changed has an element after a connection was closed or may be closed.
	changed chan struct{}
	stopped chan struct{}
	stop    func() // closes stopped

	mu sync.Mutex
	// open has the open connections, the oldest first.
	open []*conn
	// serving counts the connections that the server has not closed.
	serving sync.WaitGroup
}

// newLimitedListener limits the connections of a listener. It closes l when it is closed.
func newLimitedListener(l net.Listener) *limitedListener {
	stopped := make(chan struct{})
	return &limitedListener{
		Listener: l,
		changed:  make(chan struct{}, 1),
		stopped:  stopped,
		stop: sync.OnceFunc(func() {
			close(stopped)
		}),
	}
}

// Accept accepts a connection when there is room for it. It returns net.ErrClosed after Close. Only
// one goroutine may call it.
func (l *limitedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, isTCP := accepted.(*net.TCPConn)
	if !isTCP {
		_ = accepted.Close()
		return nil, fmt.Errorf("accepted a connection of type %T", accepted)
	}
	c := newConn(tcp, l)
	for !l.add(c) {
		select {
		case <-l.changed:
		// A connection may become closable only because time passes, see conn.until.
		case <-time.After(readTime):
		case <-l.stopped:
			_ = tcp.Close()
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// Close closes the listener and all connections.
func (l *limitedListener) Close() error {
	l.stop()
	err := l.Listener.Close()
	l.mu.Lock()
	open := slices.Clone(l.open)
	l.mu.Unlock()
	for _, c := range open {
		c.reset()
	}
	return err
}

// add adds a connection, and closes another one if there is no room. It reports false if no
// other connection may be closed.
func (l *limitedListener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxConns {
		i := l.excess(time.Now())
		if i < 0 {
			return false
		}
		l.open[i].reset()
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.open = append(l.open, c)
	l.serving.Add(1)
	return true
}

// remove removes a connection. It may have been removed already, to make room.
func (l *limitedListener) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.signal()
}

// signal wakes Accept.
func (l *limitedListener) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// excess returns the index of the connection to close for another one, or -1 if none may be
// closed. The caller holds the lock.
func (l *limitedListener) excess(now time.Time) int {
	count := map[netip.Addr]int{}
	for _, c := range l.open {
		count[c.from]++
	}
	unfinished := -1
	answered := -1
	for i, c := range l.open {
		last := &unfinished
		switch c.stage(now) {
		case stageBusy:
			continue
		case stageAnswered:
			last = &answered
		}
		if *last < 0 {
			*last = i
			continue
		}
		other := l.open[*last]
		// Between addresses with equally many connections, the older connection stays chosen.
		if count[c.from] > count[other.from] {
			*last = i
		}
	}
	if unfinished >= 0 {
		return unfinished
	}
	return answered
}

// stage says whether a connection may be closed for another one.
type stage int

const (
	// stageBusy is a connection that makes progress without its client. It stays.
	stageBusy stage = iota
	// stageUnfinished waits for more of the request, or for other scrapes.
	stageUnfinished
	// stageAnswered has sent its response.
	stageAnswered
)

// conn is a connection for one request. It reads at most maxRequest bytes, and is open for at
// most connTime.
type conn struct {
	*net.TCPConn
	// listener counts this connection until it is closed.
	listener *limitedListener
	// from is the address of the client.
	from netip.Addr
	// deadline ends every read and write, see earlier.
	deadline time.Time
	// ended is cancelled when the connection is closed.
	ended context.Context
	// reset closes the connection and drops what is not sent.
	reset func()

	// closing makes Close do its work once: the server may call it several times.
	closing sync.Once
	// left is the number of bytes that may be read. Only the reading goroutine uses it.
	left int
	// tail has the last bytes that were read, see follow. Only the reading goroutine uses it.
	tail []byte

	mu    sync.Mutex
	state stage
	// until is when a busy connection becomes unfinished; zero if it has not begun to
	// read.
	until time.Time
}

// newConn wraps an accepted connection. The time until its deadline begins now. Errors of the
// options are ignored: the kernel then uses its own limits.
func newConn(tcp *net.TCPConn, l *limitedListener) *conn {
	ended, cancel := context.WithCancel(context.Background())
	c := &conn{
		TCPConn:  tcp,
		listener: l,
		from:     addressOf(tcp.RemoteAddr()),
		deadline: time.Now().Add(connTime),
		ended:    ended,
		left:     maxRequest,
	}
	c.reset = func() {
		cancel()
		_ = tcp.Close()
	}
	_ = tcp.SetDeadline(c.deadline)
	_ = tcp.SetReadBuffer(receiveBuffer)
	_ = tcp.SetWriteBuffer(sendBuffer)
	// Closing resets the connection: otherwise the kernel keeps unread data for minutes.
	_ = tcp.SetLinger(0)
	return c
}

// stage returns the stage at a time.
func (c *conn) stage(now time.Time) stage {
	c.mu.Lock()
	defer c.mu.Unlock()
	isLate := !c.until.IsZero() && !now.Before(c.until)
	if c.state == stageBusy && isLate {
		return stageUnfinished
	}
	return c.state
}

// enter sets the stage. until is when a busy connection becomes unfinished. The zero time means
// that the stage only changes with the next call.
func (c *conn) enter(s stage, until time.Time) {
	c.mu.Lock()
	c.state = s
	c.until = until
	c.mu.Unlock()
	if s != stageBusy {
		c.listener.signal()
	}
}

// errTooLong makes the server close a connection without a response of its own: it is an
// error of reading from the network, see isCommonNetReadError in net/http/server.go.
var errTooLong = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("the request is longer than 8 KiB")}

const tooLongResponse = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n431: the header is longer than 8 KiB\n"

// Read reads the request. It fails after maxRequest bytes. A http.Server has a limit too,
// but after a header or body that is too long its goroutine sleeps for half a second
// (closeWriteAndWait in net/http/server.go), so that a flood would take memory.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		if !c.isWhole() {
			_, _ = io.WriteString(c.TCPConn, tooLongResponse)
		}
		return 0, errTooLong
	}
	isWhole := c.isWhole()
	p = p[:min(len(p), c.left)]
	n, err := c.readNow(p)
	if errors.Is(err, unix.EAGAIN) {
		isFirst := c.left == maxRequest
		if isFirst {
			c.enter(stageBusy, time.Now().Add(readTime))
		}
		n, err = c.TCPConn.Read(p)
	}
	c.left -= n
	if isWhole {
		return n, err
	}
	c.follow(p[:n])
	if c.isWhole() {
		c.enter(stageBusy, time.Now().Add(answerTime))
	} else {
		c.enter(stageUnfinished, time.Time{})
	}
	return n, err
}

// readNow reads what has arrived, without waiting. A connection whose request has arrived is
// therefore never seen waiting for it, however busy the CPU is. It fails with EAGAIN if
// there is nothing, and at the end of the stream.
func (c *conn) readNow(p []byte) (n int, err error) {
	raw, err := c.TCPConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		n, readErr = unix.Read(int(fd), p)
		return true
	})
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, unix.EAGAIN // Read finds the end of the stream, or the error
	}
	return n, readErr
}

// wholeHeader ends tail once the header was read.
const wholeHeader = "\n\n"

// isWhole reports whether the header was read.
func (c *conn) isWhole() bool {
	return string(c.tail) == wholeHeader
}

// follow looks for the empty line at the end of the header. Only the end of what was read before is
// kept: the empty line may arrive in two parts.
func (c *conn) follow(read []byte) {
	text := append(c.tail, read...)
	text = bytes.ReplaceAll(text, []byte("\r"), nil)
	if bytes.Contains(text, []byte(wholeHeader)) {
		c.tail = []byte(wholeHeader)
		return
	}
	c.tail = nil
	if bytes.HasSuffix(text, []byte("\n")) {
		c.tail = []byte("\n")
	}
}

// Close ends a connection whose request was answered or refused. The client closes it
// after the last byte; a reset could overtake the response.
func (c *conn) Close() error {
	c.closing.Do(func() {
		defer c.listener.serving.Done()
		defer c.listener.remove(c)
		defer c.reset()
		c.enter(stageAnswered, time.Time{})
		if c.ended.Err() != nil {
			return
		}
		// The client sees the end of the response, and then closes its side.
		_ = c.CloseWrite()
		_ = c.TCPConn.SetReadDeadline(c.deadline)
		_, _ = io.CopyN(io.Discard, c.TCPConn, maxRequest)
	})
	return nil
}

// SetReadDeadline, SetWriteDeadline and SetDeadline keep the deadline of the connection: the
// server removes deadlines between the phases of a request.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.TCPConn.SetReadDeadline(c.earlier(t))
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.TCPConn.SetWriteDeadline(c.earlier(t))
}

func (c *conn) SetDeadline(t time.Time) error {
	return c.TCPConn.SetDeadline(c.earlier(t))
}

// earlier returns t, or the deadline of the connection if that is earlier or t is zero.
func (c *conn) earlier(t time.Time) time.Time {
	if t.IsZero() || t.After(c.deadline) {
		return c.deadline
	}
	return t
}

// addressOf is the address of a client, without the port. An IPv4 address is the same on both
// kinds of sockets.
func addressOf(a net.Addr) netip.Addr {
	tcp, _ := a.(*net.TCPAddr)
	return tcp.AddrPort().Addr().Unmap()
}
