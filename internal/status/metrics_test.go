package status_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/status"
)

// state is a program with one resource of two devices.
type state struct {
	mu               sync.Mutex
	notReady, broken error
}

func (s *state) Alive() error { return nil }

func (s *state) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReady
}

func (s *state) Config() status.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := status.Config{Path: "/etc/generic-dp", Hash: "0a1b", Loaded: time.UnixMilli(1500), Generation: 2, Broken: s.broken, Problems: []string{}}
	if s.broken != nil {
		c.Problems = []string{s.broken.Error()}
	}
	return c
}

func (s *state) Status(context.Context) status.Status {
	held, free := 1, 2
	r := status.Resource{
		Name: "example.com/gpu", Registered: true,
		Slots: status.Slots{Healthy: 3, Unhealthy: 1, Held: &held, Free: &free},
		Devices: []status.Device{
			{ID: "usb:1:2:<A&B>", Product: "A & B", Health: status.Healthy, Slots: 3, NUMA: []int{0, 1}, Nodes: []string{"/dev/ttyUSB0"},
				Held: []status.Holder{{ID: "usb:1:2:<A&B>::1", Namespace: "default", Pod: "p", Container: "main"}}},
			{ID: "b", Health: status.Unhealthy, Reason: "device is gone", Slots: 1},
		},
	}
	// Its holders are unknown.
	retired := status.Resource{
		Name: "example.com/old", Retired: true, Slots: status.Slots{Retiring: 2},
		Devices: []status.Device{{ID: "c", Health: status.Retiring, Reason: "resource was removed from the configuration", Slots: 2}},
	}
	return status.Status{
		Version: "v1", NodeName: "worker-1", Command: "serve", Config: s.Config(), NotReady: []string{},
		Kubelet:   &status.Kubelet{Present: true, Restarts: 2},
		Degraded:  []status.Problem{{Subject: "kernel events", Reason: "no netlink"}},
		Problems:  []status.Problem{{Subject: "scan", Reason: "unreadable"}},
		Resources: []status.Resource{r, retired},
		Events:    []status.Event{{Resource: "example.com/gpu", ID: "b", What: "Unhealthy: device is gone"}},
	}
}

// server serves a state.
type server struct {
	*testing.T
	*status.Metrics
	address string
}

func newServer(t *testing.T, s status.State) *server {
	t.Helper()
	l, err := status.Listen("127.0.0.1:0")
	must(t, err)
	m := status.New(s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return &server{t, m, l.Addr().String()}
}

// get requests a path with a Host header.
func (s *server) get(path, host string) (*http.Response, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.address+path, nil)
	must(s, err)
	if host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	must(s, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(s, err)
	return resp, string(body)
}

func TestProbes(t *testing.T) {
	t.Parallel()
	state := &state{}
	s := newServer(t, state)
	if resp, body := s.get("/readyz", ""); resp.StatusCode != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz: %s %q", resp.Status, body)
	}
	state.mu.Lock()
	state.notReady = errors.New("resource example.com/gpu is not registered: refused")
	state.mu.Unlock()
	if resp, body := s.get("/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "is not registered: refused") {
		t.Errorf("/readyz: %s %q, want 503 with the reason", resp.Status, body)
	}
	if resp, _ := s.get("/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s, want 200: being alive does not depend on the kubelet", resp.Status)
	}
}

// countAll counts each kind of event.
func (s *server) countAll() {
	s.CountLoad(nil)
	s.CountLoad(errors.New("unknown key"))
	s.CountRegistration("example.com/gpu", "start")
	s.CountRegistration("example.com/gone", "start")
	s.CountAllocation("example.com/gone", time.Millisecond, nil)
	s.Forget("example.com/gone")
	s.CountRegistration("example.com/gpu", "a\"b\\c\nd\xff") // Prometheus rejects a scrape that is not UTF-8
	s.CountRefusal("example.com/gpu")
	s.CountAllocation("example.com/gpu", time.Millisecond, nil)
	s.CountAllocation("example.com/gpu", time.Millisecond, errors.New("gone"))
	s.CountSliceWrite(nil)
	s.CountScan(7, time.Millisecond, nil)
	s.CountScan(0, 0, errors.New("unreadable"))
}

func TestScrape(t *testing.T) {
	t.Parallel()
	s := newServer(t, &state{broken: errors.New("unknown key")})
	s.countAll()
	resp, body := s.get("/metrics", "10.0.0.7:9418")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s", resp.Status)
	}
	body = strings.ReplaceAll(body, runtime.Version(), "go1.26")
	want, err := os.ReadFile("testdata/metrics.golden")
	must(t, err)
	if diff := cmp.Diff(string(want), body); diff != "" {
		t.Errorf("/metrics differs from testdata/metrics.golden (-want +got):\n%s", diff)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("Content-Type %q", got)
	}
}

// Pages with serials and pod names are served on loopback only.
func TestStatusOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	s := newServer(t, &state{})
	for _, path := range []string{"/", "/status.json"} {
		for host, want := range map[string]int{
			"": http.StatusOK, "localhost:9418": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:9418": http.StatusOK,
			"evil.example": http.StatusForbidden, "10.0.0.7:9418": http.StatusForbidden,
		} {
			resp, body := s.get(path, host)
			if resp.StatusCode != want || strings.Contains(body, "<A&B>") && want != http.StatusOK {
				t.Errorf("%s for host %q: %s, want %d", path, host, resp.Status, want)
			}
		}
	}

	l, err := status.Listen(":0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- status.New(&state{}).Serve(ctx, l) }()
	defer func() {
		cancel()
		<-ended
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	addresses, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			other := &server{t, nil, net.JoinHostPort(ip.IP.String(), port)}
			if resp, body := other.get("/status.json", "localhost"); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "kubectl port-forward") {
				t.Errorf("/status.json from %s: %s %q, want 403 with a hint", ip.IP, resp.Status, body)
			}
			if resp, _ := other.get("/metrics", ""); resp.StatusCode != http.StatusOK {
				t.Errorf("/metrics from %s: %s", ip.IP, resp.Status)
			}
		}
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
