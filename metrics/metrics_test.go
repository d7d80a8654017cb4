package metrics_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/metrics"
)

type state struct {
	mu       sync.Mutex
	notReady error
	broken   error
}

func (s *state) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notReady
}
func (s *state) Config() metrics.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return metrics.Config{Hash: "0a1b", Loaded: time.UnixMilli(1500), Broken: s.broken}
}
func (s *state) Degraded() []string { return []string{"kernel events"} }
func (s *state) Resources() []metrics.Resource {
	return []metrics.Resource{{Name: "example.com/gpu", Healthy: 3, Unhealthy: 1, Registered: true}}
}

func TestServe(t *testing.T) {
	t.Parallel()
	l, err := metrics.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &state{}
	m := metrics.New("v1", s)
	m.CountLoad(nil)
	m.CountLoad(errors.New("unknown key"))
	m.CountRegistration("example.com/gpu", "start")
	m.CountRegistration("example.com/gone", "start")
	m.CountAllocation("example.com/gone", time.Millisecond, nil)
	m.Forget("example.com/gone")
	m.CountRefusal("example.com/gpu")
	m.CountAllocation("example.com/gpu", time.Millisecond, nil)
	m.CountAllocation("example.com/gpu", time.Millisecond, errors.New("gone"))
	m.CountScan(time.Millisecond, nil)
	m.CountScan(0, errors.New("unreadable"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Serve(ctx, l) }()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	s.mu.Lock()
	s.broken = errors.New(`serial "SECRET" is bad`)
	s.mu.Unlock()
	if code, body := get("/readyz"); code != http.StatusOK || !strings.HasPrefix(body, "ok\nwarning: the configuration on disk is broken") || strings.Contains(body, "SECRET") {
		t.Errorf("/readyz with a broken configuration: %d %q, want 200 with a warning and no details", code, body)
	}
	s.mu.Lock()
	s.notReady = errors.New("resource example.com/gpu is not registered: refused")
	s.mu.Unlock()
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "is not registered: refused") {
		t.Errorf("/readyz: %d %q, want 503 with the reason", code, body)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d, want 200: being alive does not depend on the kubelet", code)
	}
	code, body := get("/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d", code)
	}
	for _, want := range []string{
		metrics.BuildInfo + `{version="v1"} 1`,
		metrics.ConfigOK + ` 0`,
		metrics.ConfigInfo + `{hash="0a1b"} 1`,
		metrics.ConfigSeconds + ` 1.5`,
		metrics.ConfigLoadsTotal + `{result="ok"} 1`,
		metrics.ConfigLoadsTotal + `{result="error"} 1`,
		metrics.Devices + `{health="Healthy",resource="example.com/gpu"} 3`,
		metrics.Devices + `{health="Unhealthy",resource="example.com/gpu"} 1`,
		metrics.Registered + `{resource="example.com/gpu"} 1`,
		metrics.RegistrationsTotal + `{reason="start",resource="example.com/gpu"} 1`,
		metrics.RefusalsTotal + `{resource="example.com/gpu"} 1`,
		metrics.AllocationsTotal + `{resource="example.com/gpu",result="error"} 1`,
		metrics.AllocationsTotal + `{resource="example.com/gpu",result="ok"} 1`,
		metrics.AllocationSeconds + `_count{resource="example.com/gpu"} 2`,
		metrics.ScanSeconds + `_count 1`,
		metrics.ScanFailuresTotal + ` 1`,
		metrics.EventsDegraded + `{source="kernel events"} 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("/metrics lacks %q in\n%s", want, body)
		}
	}
	if strings.Contains(body, "example.com/gone") {
		t.Errorf("/metrics has a resource that was forgotten:\n%s", body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
