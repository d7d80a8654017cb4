package evict_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/evict"
	"github.com/generic-dp/generic-dp/internal/kubeapi"
)

const limit = 20 * time.Second

// server is as much of an API server as evict needs.
type server struct {
	*testing.T
	http *httptest.Server

	mu        sync.Mutex
	changed   chan struct{}
	version   int
	pods      map[string]map[string]any // by UID
	log       []map[string]any          // the events of watches; nil ends them
	watches   []string                  // their queries
	gone      bool                      // versions of before are too old
	evictions []string
	at        time.Time // of the last eviction
	refuse    int       // the status of evictions; 0 succeeds
	events    []string
}

func newServer(t *testing.T) *server {
	s := &server{T: t, changed: make(chan struct{}), version: 1, pods: map[string]map[string]any{}}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.StartTLS()
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// start runs evict until the test ends.
func (s *server) start(o evict.Options) {
	s.Helper()
	dir := s.TempDir()
	config := kubeapi.Config{Server: s.http.URL, CA: filepath.Join(dir, "ca"), Token: filepath.Join(dir, "token")}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	for file, text := range map[string]string{config.CA: string(ca), config.Token: "secret\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	if o.After == 0 {
		o.After = 50 * time.Millisecond
	}
	o.PerMinute, o.Log = 100, slog.New(slog.NewTextHandler(s.Output(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- evict.Run(ctx, kubeapi.New(config), o) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("Run: %v", err)
		}
	})
}

func (s *server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// put makes or changes a pod whose device has this health, as a kubelet does.
func (s *server) put(name, health string, annotations map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "MODIFIED"
	if s.pods[name] == nil {
		kind = "ADDED"
	}
	s.version++
	p := map[string]any{
		"metadata": map[string]any{"namespace": "d", "name": name, "uid": name, "resourceVersion": fmt.Sprint(s.version), "annotations": annotations},
		"spec":     map[string]any{"nodeName": "node"},
		"status": map[string]any{"phase": "Running", "containerStatuses": []any{map[string]any{
			"name": "c", "allocatedResourcesStatus": []any{map[string]any{
				"name": "vendor.example/stick", "resources": []any{map[string]any{"resourceID": "stick-" + name, "health": health}},
			}},
		}}},
	}
	s.pods[name] = p
	s.log = append(s.log, map[string]any{"type": kind, "object": p})
	s.notify()
}

// cut ends all watches. Those that go on have to list all pods again if gone is set.
func (s *server) cut(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
	s.log = append(s.log, nil)
	s.notify()
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var body struct {
		APIVersion, Kind, Message, Reason string
		InvolvedObject                    struct{ Kind, Name, UID string }
		DeleteOptions                     struct{ Preconditions struct{ UID string } }
	}
	if r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" {
		s.watch(w, r)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.Errorf("%s: %v", r.URL, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	switch {
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		s.evictions = append(s.evictions, body.DeleteOptions.Preconditions.UID)
		s.at = time.Now()
		if s.refuse != 0 {
			w.WriteHeader(s.refuse)
			fmt.Fprintf(w, `{"kind":"Status","code":%d,"reason":"TooManyRequests","message":"the budget needs 1 healthy pod"}`, s.refuse)
			return
		}
		w.WriteHeader(http.StatusCreated)
	case strings.HasSuffix(r.URL.Path, "/events"):
		s.events = append(s.events, body.InvolvedObject.UID+" "+body.Reason+": "+body.Message)
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	query := r.URL.Query()
	if s.gone && query.Get("resourceVersion") != "" {
		s.gone = false
		s.mu.Unlock()
		fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)
		return
	}
	s.watches = append(s.watches, query.Get("resourceVersion"))
	s.notify()
	encoder, next := json.NewEncoder(w), len(s.log)
	if query.Get("sendInitialEvents") == "true" {
		for _, p := range s.pods {
			_ = encoder.Encode(map[string]any{"type": "ADDED", "object": p})
		}
		_ = encoder.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"metadata": map[string]any{
			"resourceVersion": fmt.Sprint(s.version), "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
		}}})
	}
	defer s.mu.Unlock()
	for {
		for ; next < len(s.log); next++ {
			if s.log[next] == nil {
				return
			}
			_ = encoder.Encode(s.log[next])
		}
		w.(http.Flusher).Flush()
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		s.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

// until waits for a condition, which reads the server.
func (s *server) until(what string, condition func() bool) {
	s.Helper()
	deadline := time.After(limit)
	for {
		s.mu.Lock()
		ok, changed := condition(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// A pod is evicted when its device was Unhealthy for long enough, and not before; what
// is annotated, static or healthy stays.
func TestRun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put("healthy", "Healthy", nil)
	s.put("kept", "Unhealthy", map[string]string{evict.Annotation: "false"})
	s.put("static", "Unhealthy", map[string]string{"kubernetes.io/config.mirror": "x"})
	s.start(evict.Options{After: time.Second})
	s.until("watch", func() bool { return len(s.watches) > 0 })
	s.put("back", "Unhealthy", nil)
	s.put("back", "Healthy", nil)
	lost := time.Now()
	s.put("lost", "Unhealthy", nil)
	s.until("eviction", func() bool { return len(s.evictions) > 0 && len(s.events) > 0 })
	if took := s.at.Sub(lost); took < time.Second {
		t.Errorf("evicted after %s, want a second", took)
	}
	if !slices.Equal(s.evictions, []string{"lost"}) {
		t.Errorf("evicted %v, want the pod whose device is gone", s.evictions)
	}
	if want := "lost Evicted: vendor.example/stick stick-lost has been Unhealthy for 1s"; s.events[0] != want {
		t.Errorf("event %q, want %q", s.events[0], want)
	}
}

func TestOptIn(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put("other", "Unhealthy", nil)
	s.put("wants", "Unhealthy", map[string]string{evict.Annotation: "true"})
	s.start(evict.Options{OptIn: true})
	s.until("eviction", func() bool { return len(s.events) > 0 })
	if !slices.Equal(s.evictions, []string{"wants"}) {
		t.Errorf("evicted %v, want the pod with the annotation", s.evictions)
	}
}

// A disruption budget is no reason to give up.
func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.refuse = http.StatusTooManyRequests
	s.put("lost", "Unhealthy", nil)
	s.start(evict.Options{})
	s.until("report", func() bool { return len(s.events) > 0 })
	if !strings.Contains(s.events[0], "EvictionBlocked") || !strings.Contains(s.events[0], "the budget needs 1 healthy pod") {
		t.Errorf("event %q, want the reason", s.events[0])
	}
	s.mu.Lock()
	s.refuse = 0
	s.mu.Unlock()
	s.until("eviction", func() bool { return len(s.events) > 1 })
	if len(s.evictions) != 2 || !strings.Contains(s.events[1], "Evicted") {
		t.Errorf("evictions %v, events %q: want one more of each", s.evictions, s.events)
	}
}

// A watch goes on where it ended; if it can't, all pods are listed again, and those that
// went meanwhile are forgotten.
func TestWatchesGoOn(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put("first", "Unhealthy", nil)
	s.start(evict.Options{})
	s.until("first", func() bool { return len(s.evictions) == 1 })
	s.cut(false)
	s.until("next watch", func() bool { return len(s.watches) == 2 })
	if s.watches[1] == "" {
		t.Error("a watch that ended lists all pods again")
	}
	s.put("second", "Unhealthy", nil)
	s.until("second", func() bool { return len(s.evictions) == 2 })
	s.cut(true)
	s.put("third", "Unhealthy", nil)
	s.until("third", func() bool { return len(s.evictions) == 3 })
	if !slices.Equal(s.evictions, []string{"first", "second", "third"}) {
		t.Errorf("evicted %v, want each once", s.evictions)
	}
}
