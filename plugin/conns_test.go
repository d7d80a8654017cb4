package plugin

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes.
type pipes struct{ net.Listener }

func (pipes) Accept() (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

func TestWaitForHangUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newConnListener(pipes{})
		began := time.Now()
		l.wait(time.Hour) // nobody is connected
		var conns []net.Conn
		for range 3 {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		_ = conns[0].Close()
		_ = conns[0].Close() // counts once
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s for nobody", took)
		}
		l.wait(time.Minute)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("gave up after %s, want %s", took, time.Minute)
		}
		for _, c := range conns[1:] {
			go func() {
				time.Sleep(time.Second)
				_ = c.Close()
			}()
		}
		l.wait(time.Hour)
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("waited %s after the last one hung up", took-time.Minute-time.Second)
		}
	})
}
