package plugin

import (
	"net"
	"sync"
	"time"
)

// connCounter is a listener that knows how many of its connections are open.
type connCounter struct {
	net.Listener
	mu   sync.Mutex
	open int
	none chan struct{} // has a value when open has become 0
}

func (l *connCounter) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	return &countedConn{Conn: c, closed: sync.OnceFunc(l.closed)}, nil
}

func (l *connCounter) closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open--; l.open == 0 {
		select {
		case l.none <- struct{}{}:
		default:
		}
	}
}

// wait returns when no connection is open, or d has passed.
func (l *connCounter) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		l.mu.Lock()
		open := l.open
		l.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-l.none:
		case <-timer.C:
			return
		}
	}
}

// countedConn says when it is closed, by whichever side: the server closes what
// the other side has.
type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
