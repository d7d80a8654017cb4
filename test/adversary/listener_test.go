//go:build adversary

package adversary

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const (
	// hostileConns is the number of connections at a time.
	hostileConns = 600
	// floodMemory bounds the program's memory during a flood, in MiB.
	floodMemory = 40

	request = "GET /metrics HTTP/1.1\r\nHost: a\r\n"
)

// flood is a number of connections from one address.
type flood struct {
	text  string        // sent by each connection, which reads nothing
	pause time.Duration // from sending to closing
	conns int64
}

var floods = map[string]flood{
	"idle":               {"", time.Second, 2000},
	"closed at once":     {"", 0, 20_000},
	"half a request":     {request, time.Second, 2000},
	"900 kB of a header": {request + "X: " + strings.Repeat("x", 900<<10), time.Second, 2000},
	"many headers":       {request + strings.Repeat("a: b\r\n", 1<<16) + "\r\n", time.Second, 2000},
	"nothing is read":    {request + "\r\n", time.Second, 2000},
	"an endless body":    {"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 1<<20), time.Second, 2000},
	"pipelined requests": {strings.Repeat(request+"\r\n", 1<<12), time.Second, 2000},
}

// floodEnv makes the test binary flood an address: in another process, so that it does not
// slow down the fake kubelet.
const floodEnv = "GENERIC_DP_FLOOD"

func TestMain(m *testing.M) {
	if name, address, ok := strings.Cut(os.Getenv(floodEnv), "@"); ok {
		floods[name].run(address)
		return
	}
	os.Exit(m.Run())
}

func (f flood) run(address string) {
	d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var made atomic.Int64
	var conns sync.WaitGroup
	for range hostileConns {
		conns.Go(func() {
			for made.Add(1) <= f.conns {
				c, err := d.Dial("tcp", address)
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(time.Second))
				_, _ = io.WriteString(c, f.text)
				time.Sleep(f.pause)
				_ = c.(*net.TCPConn).SetLinger(0) // leaves no port in TIME_WAIT
				_ = c.Close()
			}
		})
	}
	conns.Wait()
}

// No client of the listener ends the program, exhausts its files or keeps probes out.
func TestListener(t *testing.T) {
	for name := range floods {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			// /metrics must not fit into the buffers of a socket.
			n.configure(goodConfig + resourceWith("count = 5000\nmatch.virtual = \"d\""))
			n.limits = "ulimit -n 1024; "
			n.start()
			n.waitServed()
			for i := range 5000 {
				n.kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: fmt.Sprint("pod-", i), Container: "main", Resource: "example.com/hostile"},
					fmt.Sprintf("virtual:example.com:hostile:d::%d", i))
			}
			n.must(poll(func() error {
				page, err := n.get(t.Context(), "/metrics")
				n.must(err)
				if len(page) < 1<<18 {
					return fmt.Errorf("/metrics has %d bytes, want 256 KiB with the holders that the kubelet lists", len(page))
				}
				return nil
			}))
			registrations := n.kubelet.Registrations(good)
			n.checkDuringFlood(name)
			if got := n.kubelet.Registrations(good); got <= registrations {
				t.Errorf("%d registrations after a restart of the kubelet, want more than %d", got, registrations)
			}
			n.stop()
			if peak := n.group.peak(); peak > floodMemory {
				t.Errorf("peak memory %.1f MiB, want at most %d", peak, floodMemory)
			}
		})
	}
}

// checkDuringFlood checks that the program serves while it is flooded.
func (n *node) checkDuringFlood(name string) {
	n.Helper()
	attack := exec.Command(os.Args[0])
	attack.Env = append(os.Environ(), floodEnv+"="+name+"@"+n.address)
	n.must(attack.Start())
	ended, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_ = attack.Wait()
	}()
	for i := 0; ended.Err() == nil || i < 3; i++ {
		n.checkServes()
		if i == 1 { // registration needs free file descriptors
			n.must(n.kubelet.Restart())
			n.waitServed()
		}
	}
}

// The same with the largest configuration that is served.
func TestListenerAndConfig(t *testing.T) {
	n := newNode(t)
	n.configure(goodConfig + manySlots)
	n.start()
	n.waitServed()
	n.waitReady()
	n.checkDuringFlood("nothing is read")
	n.stop()
}
