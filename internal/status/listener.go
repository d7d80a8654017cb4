package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Clients may be hostile. These limits bound memory and files: some 10 MiB, most of it
// buffers of the kernel, and 65 files.
const (
	maxConns  = 64
	maxHeader = 8 << 10
	// connTime is from accept to close, for one request.
	connTime = 10 * time.Second
	// sendBuffer and receiveBuffer are the kernel's memory for a connection, which
	// counts as the container's.
	sendBuffer    = 64 << 10
	receiveBuffer = maxHeader
)

// Listen opens the listener, so that an unusable address fails before anything is
// served.
func Listen(address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1} // no connection is idle for long
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// Serve serves requests on l until ctx is cancelled, one a connection. It is not an
// http.Server, which keeps a connection with an oversized header or an unread body for
// half a second, even if it is closed meanwhile: 64 of them would keep probes out.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var clients conns
	// The handler of a closed connection ends at once, unless it renders a response: one at
	// most does.
	var handlers errgroup.Group
	handlers.SetLimit(2 * maxConns)
	defer func() {
		cancel()
		_ = handlers.Wait() // always nil
	}()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			handlers.Go(clients.handler(ctx, c.(*net.TCPConn), m.handle))
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("--listen: %w", err)
		default: // a temporary error, such as too many open files
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// conns are the open connections. At maxConns, a new one closes the oldest of the address
// that has the most: neither idle connections nor a flood from another address than the
// kubelet's keep a probe out.
type conns struct {
	mu   sync.Mutex
	open []*conn // oldest first
}

type conn struct {
	from  netip.Addr
	close context.CancelFunc
}

// handler adds a connection and returns a function that handles it, and closes it then or
// when ctx ends.
func (s *conns) handler(ctx context.Context, c *net.TCPConn, handle func(context.Context, net.Conn)) func() error {
	ctx, cancel := context.WithCancel(ctx)
	this := &conn{from: addressOf(c.RemoteAddr()), close: cancel}
	s.add(this)
	return func() error {
		defer s.remove(this)
		defer cancel()
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		_ = c.SetDeadline(time.Now().Add(connTime))
		_ = c.SetReadBuffer(receiveBuffer)
		_ = c.SetWriteBuffer(sendBuffer)
		// Closing resets the connection: otherwise the kernel keeps unread data for minutes.
		_ = c.SetLinger(0)
		handle(ctx, c)
		// The client closes the connection after the last byte.
		_ = c.CloseWrite()
		_, _ = io.CopyN(io.Discard, c, maxHeader)
		return nil
	}
}

func (s *conns) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == maxConns {
		i := s.excess()
		s.open[i].close()
		s.open = slices.Delete(s.open, i, i+1)
	}
	s.open = append(s.open, c)
}

func (s *conns) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, c); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// excess is the index of the oldest connection of the address that has the most.
func (s *conns) excess() (most int) {
	count := map[netip.Addr]int{}
	for _, c := range s.open {
		count[c.from]++
	}
	for i, c := range s.open {
		if count[c.from] > count[s.open[most].from] {
			most = i
		}
	}
	return most
}

func addressOf(a net.Addr) netip.Addr {
	tcp, _ := a.(*net.TCPAddr)
	return tcp.AddrPort().Addr().Unmap()
}
