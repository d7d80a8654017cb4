package status_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
)

// dial connects from a loopback address and sends text, which the server may refuse to
// receive.
func (s *server) dial(from, text string) net.Conn {
	s.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.Context(), "tcp", s.address)
	must(s, err)
	s.Cleanup(func() { _ = c.Close() })
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, text)
	return c
}

const (
	half = "GET /healthz HTTP/1.1\r\nHost: a\r\n"
	rest = "\r\n"
)

// A connection above 64 closes the oldest one.
func TestExcessConnections(t *testing.T) {
	t.Parallel()
	s := newServer(t, &state{})
	const flood = 100
	closed := make(chan error, flood)
	for range flood {
		c := s.dial("127.0.0.3", half)
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err
		}()
	}
	for range flood - 64 {
		if err := <-closed; err == nil {
			t.Error("a connection of the flood has a response, want it closed")
		}
	}
	newest := s.dial("127.0.0.3", half+rest)
	resp, err := http.ReadResponse(bufio.NewReader(newest), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the newest connection: %v %v", resp, err)
	}
}

// A request that is too long has no response: its client may never read it.
func TestTooLongRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t, &state{})
	c := s.dial("127.0.0.1", "GET /healthz HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 900<<10)+"\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		t.Errorf("response %s, want a closed connection", resp.Status)
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, &state{})
	for text, want := range map[string]int{
		"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 7<<10) + "\r\n\r\n": http.StatusOK,
		"HEAD /healthz HTTP/1.0\r\n\r\n":                                     http.StatusOK,
		"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd": http.StatusMethodNotAllowed,
		"GET /secret HTTP/1.1\r\nHost: a\r\n\r\n":                            http.StatusNotFound,
		"GET / HTTP/1.1\r\n\r\n":                                             http.StatusBadRequest, // without Host
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":                                  http.StatusForbidden,
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n":         http.StatusMethodNotAllowed,
		"\x16\x03\x01\r\n\r\n":                                               http.StatusBadRequest,
	} {
		resp, err := http.ReadResponse(bufio.NewReader(s.dial("127.0.0.1", text)), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%.40q: %v %v, want %d", text, resp, err, want)
		}
	}
}

// slowState waits in Status.
type slowState struct {
	state
	asked, answer chan struct{}
}

func (s *slowState) Status(ctx context.Context) status.Status {
	s.asked <- struct{}{}
	select {
	case <-s.answer:
	case <-ctx.Done():
	}
	return s.state.Status(ctx)
}

// Scrapes are answered one at a time, which holds up no probe.
func TestOneScrapeAtATime(t *testing.T) {
	t.Parallel()
	slow := &slowState{asked: make(chan struct{}), answer: make(chan struct{})}
	s := newServer(t, slow)
	const scrape = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
	var scrapes []net.Conn
	for range 3 {
		scrapes = append(scrapes, s.dial("127.0.0.1", scrape))
	}
	<-slow.asked // one of the scrapes
	if resp, _ := s.get("/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s", resp.Status)
	}
	statuses := make(chan string, 3)
	for _, c := range scrapes {
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				statuses <- err.Error()
				return
			}
			statuses <- resp.Status + resp.Header.Get("Retry-After")
		}()
	}
	const refused = "503 Service Unavailable1"
	if a, b := <-statuses, <-statuses; a != refused || b != refused {
		t.Errorf("waiting scrapes: %q, %q, want %q", a, b, refused)
	}
	close(slow.answer)
	if got := <-statuses; got != "200 OK" {
		t.Errorf("scrape: %q", got)
	}
}
