package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

// screen keeps what a command writes.
type screen struct {
	mu      sync.Mutex
	text    strings.Builder
	written chan struct{} // has capacity 1
}

func newScreen() *screen { return &screen{written: make(chan struct{}, 1)} }

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.written <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// waitFor waits until the screen contains a text a number of times.
func (s *screen) waitFor(t *testing.T, text string, count int) {
	t.Helper()
	timeout := time.After(time.Minute)
	for strings.Count(s.String(), text) < count {
		select {
		case <-s.written:
		case <-timeout:
			t.Fatalf("%q appears less than %d times on the screen: %q", text, count, s)
		}
	}
}

// watched is a fake cluster whose kubectl is a program, for status --watch of the plugin.
type watched struct {
	dir  string
	args []string
}

// newWatched writes a kubectl that prints the lists of a directory, and lets a node answer with
// the file status there.
func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{dir: t.TempDir()}
	kubectl := filepath.Join(w.dir, "kubectl")
	script := fmt.Sprintf("#!/bin/sh\ncd %q\ncase $1 in exec) cat status ;; *) cat \"$2\" ;; esac\n", w.dir)
	place(t, kubectl, script)
	if err := os.Chmod(kubectl, 0o700); err != nil {
		t.Fatal(err)
	}
	place(t, filepath.Join(w.dir, "nodes"), `{"items": [{"metadata": {"name": "attic"}}]}`)
	place(t, filepath.Join(w.dir, "pods"), `{"items": [{
		"metadata": {"name": "generic-dp-attic", "namespace": "generic-dp"},
		"spec": {"nodeName": "attic", "containers": [{"name": "generic-dp", "args": ["serve"]}]},
		"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}]}`)
	w.answer(t, "Healthy")
	w.args = []string{"status", "--watch", "--interval=10ms", "--kubectl", kubectl}
	return w
}

// answer sets the status of the node: a resource with a device of this health.
func (w *watched) answer(t *testing.T, health string) {
	t.Helper()
	next := filepath.Join(w.dir, "next")
	place(t, next, fmt.Sprintf(`{"resources": [{"name": "example.com/zigbee", "api": "device-plugin", "registered": true,
		"devices": [{"id": "stick", "health": %q, "reason": "unplugged", "slots": 1}]}]}`, health))
	// A query never finds half of it.
	if err := os.Rename(next, filepath.Join(w.dir, "status")); err != nil {
		t.Fatal(err)
	}
}

// fail makes each query fail.
func (w *watched) fail(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(w.dir, "pods")); err != nil {
		t.Fatal(err)
	}
}

// In a file or a pipe, status --watch of the plugin writes a report only if it differs from the last one.
// A failed query does not end it, an interrupt does.
func TestFleetWatch(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := newScreen()
	var stderr strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- plugin.Run(ctx, "test", w.args, out, &stderr)
	}()
	out.waitFor(t, "1 of 1 node answered\n", 1)
	w.answer(t, "Unhealthy")
	out.waitFor(t, "unplugged", 1)
	w.fail(t)
	out.waitFor(t, "error: kubectl: ", 1)
	interrupt()
	if code := <-ended; code != 0 || stderr.String() != "" {
		t.Errorf("status %d and %q after an interrupt, want 0 and nothing", code, stderr.String())
	}
	reports := strings.Count(out.String(), "1 of 1 node answered\n")
	failures := strings.Count(out.String(), "error: ")
	if reports != 2 || failures != 1 {
		t.Errorf("%d reports and %d errors, want 2 and 1:\n%s", reports, failures, out)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("escape sequences without a terminal: %q", out)
	}
}
