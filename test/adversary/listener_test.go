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
	// floodMemory bounds the program's memory during a flood, in MiB. The limit of the DaemonSet is 64.
	floodMemory = 56

	request     = "GET /metrics HTTP/1.1\r\nHost: a\r\n"
	endlessBody = "GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
)

// flood is a number of connections.
type flood struct {
	text  string        // sent by each connection, which reads nothing
	pause time.Duration // from sending to closing
	conns int64
	// fromMany is true if every connection is from another address, up to 65,000, and
	// false if all are from one.
	fromMany bool
}

// floods are from one address.
var floods = map[string]flood{
	"idle":               {text: "", pause: time.Second, conns: 2000},
	"closed at once":     {text: "", pause: 0, conns: 20_000},
	"half a request":     {text: request, pause: time.Second, conns: 2000},
	"900 kB of a header": {text: request + "X: " + strings.Repeat("x", 900<<10), pause: time.Second, conns: 2000},
	"many headers":       {text: request + strings.Repeat("a: b\r\n", 1<<16) + "\r\n", pause: time.Second, conns: 2000},
	"nothing is read":    {text: request + "\r\n", pause: time.Second, conns: 2000},
	"an endless body":    {text: endlessBody + strings.Repeat("x", 1<<20), pause: time.Second, conns: 2000},
	"pipelined requests": {text: strings.Repeat(request+"\r\n", 1<<12), pause: time.Second, conns: 2000},
}

// floodsFromMany are from thousands of addresses.
var floodsFromMany = map[string]flood{
	"many idle":                  {text: "", pause: 50 * time.Millisecond, conns: 67_000, fromMany: true},
	"many halves of a request":   {text: request, pause: 50 * time.Millisecond, conns: 67_000, fromMany: true},
	"many scrapes":               {text: request + "\r\n", pause: 50 * time.Millisecond, conns: 67_000, fromMany: true},
	"many probes without a read": {text: "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", pause: 50 * time.Millisecond, conns: 67_000, fromMany: true},
	"many large headers":         {text: request + "X: " + strings.Repeat("x", 64<<10), pause: 50 * time.Millisecond, conns: 67_000, fromMany: true},
	"many endless bodies":        {text: endlessBody + strings.Repeat("x", 64<<10), pause: 50 * time.Millisecond, conns: 67_000, fromMany: true},
}

// floodEnv makes the test binary flood an address: in another process, so that it does not
// slow down the fake kubelet.
const floodEnv = "GENERIC_DP_FLOOD"

func TestMain(m *testing.M) {
	if name, address, ok := strings.Cut(os.Getenv(floodEnv), "@"); ok {
		f, found := floods[name]
		if !found {
			f = floodsFromMany[name]
		}
		f.run(address)
		return
	}
	os.Exit(m.Run())
}

func (f flood) run(address string) {
	var made atomic.Int64
	var conns sync.WaitGroup
	for range hostileConns {
		conns.Go(func() {
			for {
				i := made.Add(1)
				if i > f.conns {
					return
				}
				d := net.Dialer{Timeout: time.Second, LocalAddr: f.from(i)}
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

// from is the address of a connection.
func (f flood) from(i int64) *net.TCPAddr {
	if !f.fromMany {
		return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	// Addresses of nodes are in 127.1.0.0/16.
	return &net.TCPAddr{IP: net.IPv4(127, 2, byte(i>>8), byte(i))}
}

// While connections from thousands of addresses arrive, every probe is answered.
func TestFloodFromManyAddresses(t *testing.T) {
	for name := range floodsFromMany {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.limits = "ulimit -n 1024; "
			n.serve()
			ended := n.startFlood(name)
			probes, failed := 0, 0
			var slowest time.Duration
			for ended.Err() == nil {
				began := time.Now()
				text, err := n.probe("/healthz")
				slowest = max(slowest, time.Since(began))
				probes++
				if err != nil || text != "ok\n" {
					failed++
					t.Logf("probe %d: %q, %v", probes, text, err)
				}
			}
			t.Logf("%d of %d probes failed, the slowest took %s", failed, probes, slowest)
			if failed > 0 {
				t.Errorf("%d of %d probes failed, want every probe answered", failed, probes)
			}
			n.checkServes()
			n.stop()
			if peak := n.group.peak(); peak > floodMemory {
				t.Errorf("peak memory %.1f MiB, want at most %d", peak, floodMemory)
			}
		})
	}
}

// No client of the listener ends the program, exhausts its files or keeps probes out.
func TestListener(t *testing.T) {
	for name := range floods {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			// /metrics must not fit into the buffers of a socket.
			n.configure(goodConfig + resourceWith("count = 5000\nmatch.virtual = \"d\""))
			n.limits = "ulimit -n 1024; "
			n.serve()
			held := map[kubelettest.Request][]string{}
			for i := range 5000 {
				pod := kubelettest.Request{Namespace: "default", Pod: fmt.Sprint("pod-", i), Container: "main", Resource: "example.com/hostile"}
				held[pod] = []string{fmt.Sprintf("virtual:example.com:hostile:d::%d", i)}
			}
			n.kubelet.HoldAll(held)
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

// startFlood starts a flood in another process. The context ends with it.
func (n *node) startFlood(name string) context.Context {
	n.Helper()
	attack := exec.Command(os.Args[0])
	attack.Env = append(os.Environ(), floodEnv+"="+name+"@"+n.address)
	n.must(attack.Start())
	ended, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_ = attack.Wait()
	}()
	return ended
}

// checkDuringFlood checks that the program serves while it is flooded.
func (n *node) checkDuringFlood(name string) {
	n.Helper()
	ended := n.startFlood(name)
	for i := 0; ended.Err() == nil || i < 3; i++ {
		n.checkServes()
		if i == 1 { // registration needs free file descriptors
			n.must(n.kubelet.Restart())
			n.waitServed()
		}
	}
}
