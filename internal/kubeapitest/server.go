// Package kubeapitest is a stand-in for the Kubernetes API server over real sockets, for
// tests: objects of any kind, with resource versions, field selectors, watches, and
// faults. Collections are flat: pods of a namespace are not among all pods.
package kubeapitest

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubeapi"
)

// Object is an object as JSON.
type Object = map[string]any

// Server is the stand-in.
type Server struct {
	// Config of a client.
	Config kubeapi.Config

	t       testing.TB
	http    *httptest.Server
	address string

	mu       sync.Mutex
	token    string
	version  int
	oldest   int               // version that watches may begin with
	objects  map[string]Object // by path
	log      []change
	changed  chan struct{}
	ended    chan struct{} // closed: watches end
	fault    func(*http.Request) int
	mutate   func(Object)
	requests []Request
}

// Request is one request that was answered.
type Request struct {
	Method, Path, Query string
	At                  time.Time
	Code                int
}

type change struct {
	version int
	kind    string // "ADDED", ...
	path    string
	object  Object
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	dir := t.TempDir()
	s := &Server{
		t: t, token: "first", version: 100, objects: map[string]Object{}, changed: make(chan struct{}), ended: make(chan struct{}),
		Config: kubeapi.Config{CA: filepath.Join(dir, "ca.crt"), Token: filepath.Join(dir, "token")},
	}
	s.address = "127.0.0.1:0"
	s.Start()
	t.Cleanup(s.Stop)
	s.write(s.Config.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw}))
	s.write(s.Config.Token, []byte("first\n"))
	return s
}

func (s *Server) write(file string, text []byte) {
	s.t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Start starts it again, at the same address.
func (s *Server) Start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.Listener.Close()
	s.http.Listener = listener
	s.http.StartTLS()
	s.Config.Server = s.http.URL
}

// Stop stops it, and cuts watches.
func (s *Server) Stop() {
	if s.http != nil {
		s.http.CloseClientConnections()
		s.http.Close()
		s.http = nil
	}
}

// EndWatches ends all watches as a server does after a while.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ended)
	s.ended = make(chan struct{})
}

// Compact makes watches from an older version than now fail.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest = s.version
}

// Rotate makes the server accept only this token.
func (s *Server) Rotate(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Fault answers requests with the status that f returns, unless it is 0.
func (s *Server) Fault(f func(*http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Mutate changes objects before they are stored, as an older server that drops fields.
func (s *Server) Mutate(f func(Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutate = f
}

// Put creates or replaces an object, as another client.
func (s *Server) Put(path string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(path, o)
}

// Delete deletes an object, as another client.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delete(path)
}

// Objects are the objects of a collection by path.
func (s *Server) Objects(collection string) map[string]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Object{}
	for p, o := range s.objects {
		if path.Dir(p) == collection {
			out[p] = o
		}
	}
	return out
}

// Requests are the requests that were answered; a watch counts when it begins.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Changed is closed at the next change or request.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Server) append(c change) {
	c.version = s.version
	s.log = append(s.log, c)
	s.notify()
}

func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) put(path string, o Object) Object {
	o = clone(o)
	if s.mutate != nil {
		s.mutate(o)
	}
	kind := "ADDED"
	meta, _ := o["metadata"].(Object)
	if meta == nil {
		meta = Object{}
		o["metadata"] = meta
	}
	if old := s.objects[path]; old != nil {
		kind = "MODIFIED"
		before := old["metadata"].(Object)
		meta["uid"] = before["uid"]
		meta["resourceVersion"] = before["resourceVersion"]
		if equal(old, o) {
			return old
		}
	}
	s.version++
	if meta["uid"] == nil {
		meta["uid"] = "uid-" + strconv.Itoa(s.version)
	}
	meta["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[path] = o
	s.append(change{kind: kind, path: path, object: o})
	return o
}

func (s *Server) delete(path string) bool {
	o := s.objects[path]
	if o == nil {
		return false
	}
	delete(s.objects, path)
	s.version++
	o = clone(o)
	o["metadata"].(Object)["resourceVersion"] = strconv.Itoa(s.version)
	s.append(change{kind: "DELETED", path: path, object: o})
	return true
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	if r.URL.Query().Get("watch") != "" && s.refuse(r) == 0 {
		from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		s.record(r, http.StatusOK)
		s.mu.Unlock()
		s.watch(w, r, from)
		return
	}
	code, answer := s.answer(r, body)
	s.record(r, code)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *Server) record(r *http.Request, code int) {
	s.requests = append(s.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, At: time.Now(), Code: code})
	s.notify()
}

// refuse is the status of a request that is not let in.
func (s *Server) refuse(r *http.Request) int {
	if r.Header.Get("Authorization") != "Bearer "+s.token {
		return http.StatusUnauthorized
	}
	if s.fault != nil {
		return s.fault(r)
	}
	return 0
}

func (s *Server) answer(r *http.Request, body []byte) (code int, answer Object) {
	if code := s.refuse(r); code != 0 {
		return code, status(code)
	}
	object := Object{}
	if len(body) > 0 && json.Unmarshal(body, &object) != nil {
		return http.StatusBadRequest, status(http.StatusBadRequest)
	}
	p := r.URL.Path
	switch r.Method {
	case http.MethodPost:
		meta, _ := object["metadata"].(Object)
		name, _ := meta["name"].(string)
		if p = path.Join(p, name); s.objects[p] != nil {
			return http.StatusConflict, status(http.StatusConflict)
		}
		return http.StatusCreated, s.put(p, object)
	case http.MethodPut:
		if s.objects[p] == nil {
			break
		}
		return http.StatusOK, s.put(p, object)
	case http.MethodDelete:
		if s.delete(p) {
			return http.StatusOK, Object{"kind": "Status", "status": "Success"}
		}
	default:
		if o := s.objects[p]; o != nil {
			return http.StatusOK, o
		}
		if strings.HasSuffix(p, "s") {
			return http.StatusOK, s.list(r)
		}
	}
	return http.StatusNotFound, status(http.StatusNotFound)
}

func (s *Server) list(r *http.Request) Object {
	items := []Object{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		if selected(r, p, s.objects[p]) {
			items = append(items, s.objects[p])
		}
	}
	return Object{"kind": "List", "metadata": Object{"resourceVersion": strconv.Itoa(s.version)}, "items": items}
}

// selected applies the collection and the field selector of a request.
func selected(r *http.Request, p string, o Object) bool {
	if path.Dir(p) != r.URL.Path {
		return false
	}
	selector := r.URL.Query().Get("fieldSelector")
	for _, term := range strings.FieldsFunc(selector, func(c rune) bool { return c == ',' }) {
		field, value, _ := strings.Cut(term, "=")
		field, not := strings.CutSuffix(field, "!")
		at := any(o)
		for _, key := range strings.Split(field, ".") {
			inner, _ := at.(Object)
			at = inner[key]
		}
		if (at == value) == not {
			return false
		}
	}
	return true
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, from int) {
	enc := json.NewEncoder(w)
	flusher := w.(http.Flusher)
	flusher.Flush()
	s.mu.Lock()
	sent, ended := 0, s.ended
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range s.list(r)["items"].([]Object) {
			_ = enc.Encode(Object{"type": "ADDED", "object": o})
		}
		from, sent = s.version, len(s.log)
		_ = enc.Encode(Object{"type": "BOOKMARK", "object": Object{"metadata": Object{
			"resourceVersion": strconv.Itoa(from), "annotations": Object{"k8s.io/initial-events-end": "true"},
		}}})
	}
	for sent < len(s.log) && s.log[sent].version <= from {
		sent++
	}
	for {
		if from < s.oldest {
			s.mu.Unlock()
			_ = enc.Encode(Object{"type": "ERROR", "object": status(http.StatusGone)})
			return
		}
		pending := s.log[sent:]
		sent = len(s.log)
		changed := s.changed
		s.mu.Unlock()
		for _, c := range pending {
			if selected(r, c.path, c.object) && enc.Encode(Object{"type": c.kind, "object": c.object}) != nil {
				return
			}
		}
		flusher.Flush()
		select {
		case <-r.Context().Done():
			return
		case <-ended:
			return
		case <-changed:
		}
		s.mu.Lock()
	}
}

func status(code int) Object {
	return Object{"kind": "Status", "status": "Failure", "code": code, "reason": strings.ReplaceAll(http.StatusText(code), " ", ""), "message": "by the stand-in"}
}

func clone(o Object) Object {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	out := Object{}
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

func equal(a, b Object) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
