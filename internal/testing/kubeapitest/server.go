// Package kubeapitest is a fake Kubernetes API server over real sockets, for tests: objects
// of any kind, with resource versions, field selectors, watches and faults. Collections are
// flat: the pods of a namespace are not in the collection of all pods.
package kubeapitest

import (
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
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// Object is an object as JSON.
type Object = map[string]any

// Server is the fake API server.
type Server struct {
	Config kubeapi.Config // of a client

	t       testing.TB
	http    *httptest.Server
	address string

	mu       sync.Mutex
	token    string
	version  int
	oldest   int               // version from which watches may start
	objects  map[string]Object // by path
	log      []change
	changed  chan struct{}
	ended    chan struct{} // closing it ends the watches
	watches  int           // begun since EndWatches
	fault    func(*http.Request, Object) int
	refuse   func(*http.Request) (int, Object)
	validate func(Object) []kubeapi.Cause
	requests []Request
}

// Request is an answered request.
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

// New starts a server and stops it at the end of the test.
func New(t testing.TB) *Server {
	dir := t.TempDir()
	s := &Server{
		t:       t,
		token:   "first",
		version: 100,
		objects: map[string]Object{},
		changed: make(chan struct{}),
		ended:   make(chan struct{}),
		Config:  kubeapi.Config{CA: filepath.Join(dir, "ca.crt"), Token: filepath.Join(dir, "token")},
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

// Start starts the server; after Stop, at the same address.
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

// Stop stops the server and cuts watches.
func (s *Server) Stop() {
	if s.http != nil {
		s.http.CloseClientConnections()
		s.http.Close()
		s.http = nil
	}
}

// EndWatches ends all watches, as an API server does after minutes. It waits for a watch,
// since a client that has just listed is about to start one.
func (s *Server) EndWatches() {
	s.t.Helper()
	for late := time.After(time.Minute); ; {
		s.mu.Lock()
		changed := s.changed
		watched := s.watches > 0
		if watched {
			close(s.ended)
			s.ended = make(chan struct{})
			s.watches = 0
		}
		s.mu.Unlock()
		if watched {
			return
		}
		select {
		case <-changed:
		case <-late:
			s.t.Fatal("no watch to end within a minute")
		}
	}
}

// Compact makes watches from versions before the current one fail.
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

// Fault answers requests with the status that f returns, unless it is 0. f is called
// concurrently and may change the object of a request, like a server that drops fields.
func (s *Server) Fault(f func(r *http.Request, o Object) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Refuse answers requests with the HTTP status and the Status object that f returns, unless the
// object is nil. f is called concurrently.
func (s *Server) Refuse(f func(r *http.Request) (int, Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Validate rejects objects of clients for which f returns causes, as invalid.
func (s *Server) Validate(f func(o Object) []kubeapi.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.validate = f
}

// Put creates or replaces an object, as another client.
func (s *Server) Put(path string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(path, clone(o))
}

// PutShared is Put without a copy of the object, which may share its parts with others and
// must not change: for objects of megabytes.
func (s *Server) PutShared(path string, o Object) {
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

// Requests are the answered requests, and the watches that began.
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

// record appends the change that led to the current version.
func (s *Server) record(kind, path string, o Object) {
	s.log = append(s.log, change{s.version, kind, path, o})
	s.notify()
}

func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) put(path string, o Object) Object {
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
		if reflect.DeepEqual(old, o) {
			return old
		}
	}
	s.version++
	if meta["uid"] == nil {
		meta["uid"] = "uid-" + strconv.Itoa(s.version)
	}
	meta["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[path] = o
	s.record(kind, path, o)
	return o
}

func (s *Server) delete(path string) {
	o := s.objects[path]
	if o == nil {
		return
	}
	delete(s.objects, path)
	s.version++
	o = clone(o)
	o["metadata"].(Object)["resourceVersion"] = strconv.Itoa(s.version)
	s.record("DELETED", path, o)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	object := Object{}
	if body, err := io.ReadAll(r.Body); err != nil || len(body) > 0 && json.Unmarshal(body, &object) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	watch := r.URL.Query().Get("watch") != ""
	s.mu.Lock()
	token := s.token
	fault := s.fault
	refuse := s.refuse
	s.mu.Unlock()
	code := 0
	answer := Object(nil)
	if r.Header.Get("Authorization") != "Bearer "+token {
		code = http.StatusUnauthorized
	} else if fault != nil {
		code = fault(r, object) // may block: without the lock
	}
	if code == 0 && refuse != nil {
		if status, o := refuse(r); o != nil {
			code = status
			answer = o
		}
	}
	s.mu.Lock()
	if code == 0 && watch {
		code = http.StatusOK
		s.watches++
	} else if code == 0 {
		code, answer = s.answer(r, object)
	}
	if answer == nil {
		answer = status(code)
	}
	ended := s.ended
	s.requests = append(s.requests, Request{
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  r.URL.RawQuery,
		At:     time.Now(),
		Code:   code,
	})
	s.notify()
	s.mu.Unlock()
	if watch && code == http.StatusOK {
		s.watch(w, r, ended)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// answer carries out a request. A nil answer is the Status of the code.
func (s *Server) answer(r *http.Request, object Object) (code int, answer Object) {
	p := r.URL.Path
	stored := s.objects[p]
	if s.validate != nil && (r.Method == http.MethodPost || r.Method == http.MethodPut) {
		if causes := s.validate(object); causes != nil {
			invalid := status(http.StatusUnprocessableEntity)
			invalid["reason"] = "Invalid"
			invalid["details"] = Object{"causes": causes}
			return http.StatusUnprocessableEntity, invalid
		}
	}
	switch {
	case r.Method == http.MethodPost:
		meta, _ := object["metadata"].(Object)
		name, _ := meta["name"].(string)
		if p = path.Join(p, name); s.objects[p] != nil {
			return http.StatusConflict, nil
		}
		return http.StatusCreated, s.put(p, object)
	case r.Method == http.MethodGet && stored == nil && strings.HasSuffix(p, "s"):
		return http.StatusOK, s.list(r)
	case stored == nil:
		return http.StatusNotFound, nil
	case r.Method == http.MethodPut:
		return http.StatusOK, s.put(p, object)
	case r.Method == http.MethodDelete:
		s.delete(p)
		return http.StatusOK, Object{"kind": "Status", "status": "Success"}
	}
	return http.StatusOK, stored
}

func (s *Server) list(r *http.Request) Object {
	items := []Object{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		if selected(r, p, s.objects[p]) {
			items = append(items, s.objects[p])
		}
	}
	meta := Object{"resourceVersion": strconv.Itoa(s.version)}
	from, limit := page(r)
	items = items[min(from, len(items)):]
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		meta["continue"] = strconv.Itoa(from + limit)
	}
	return Object{"kind": "List", "metadata": meta, "items": items}
}

// page returns the first object of the page that a request asks for, and the maximum number
// of objects; 0 if there is no limit. Unlike a real server, it does not remember the
// version of the first page.
func page(r *http.Request) (from, limit int) {
	query := r.URL.Query()
	from, _ = strconv.Atoi(query.Get("continue"))
	limit, _ = strconv.Atoi(query.Get("limit"))
	return from, limit
}

// watchEvent is an event as a server writes it: the type first.
type watchEvent struct {
	Type   string `json:"type"`
	Object Object `json:"object"`
}

// selected reports whether an object is in the collection of a request and meets its field
// selector.
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

func (s *Server) watch(w http.ResponseWriter, r *http.Request, ended <-chan struct{}) {
	enc := json.NewEncoder(w)
	flusher := w.(http.Flusher)
	flusher.Flush()
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	s.mu.Lock()
	all := s.list(r)
	version := s.version
	s.mu.Unlock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		from = version
		for _, o := range all["items"].([]Object) {
			_ = enc.Encode(watchEvent{"ADDED", o})
		}
		_ = enc.Encode(watchEvent{"BOOKMARK", Object{"metadata": Object{
			"resourceVersion": strconv.Itoa(from), "annotations": Object{"k8s.io/initial-events-end": "true"},
		}}})
	}
	for {
		s.mu.Lock()
		expired := from < s.oldest
		changed := s.changed
		log := s.log
		version := s.version
		s.mu.Unlock()
		if expired {
			_ = enc.Encode(watchEvent{"ERROR", status(http.StatusGone)})
			return
		}
		for _, c := range log {
			if c.version > from && selected(r, c.path, c.object) {
				_ = enc.Encode(watchEvent{c.kind, c.object})
			}
		}
		flusher.Flush()
		from = version
		select {
		case <-r.Context().Done():
			return
		case <-ended:
			return
		case <-changed:
		}
	}
}

func status(code int) Object {
	return Object{
		"kind":    "Status",
		"status":  "Failure",
		"code":    code,
		"reason":  strings.ReplaceAll(http.StatusText(code), " ", ""),
		"message": "from the fake API server",
	}
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

// Used lists the rights that the requests need, "create pods/eviction", sorted.
func (s *Server) Used() []string {
	verbs := map[string]string{
		http.MethodPost:   "create",
		http.MethodPut:    "update",
		http.MethodPatch:  "patch",
		http.MethodDelete: "delete",
	}
	used := map[string]bool{}
	for _, r := range s.Requests() {
		parts := strings.Split(strings.TrimPrefix(r.Path, "/"), "/")
		parts = parts[map[string]int{"api": 2, "apis": 3}[parts[0]]:]
		if parts[0] == "namespaces" {
			parts = parts[2:]
		}
		verb := verbs[r.Method]
		resource := parts[0]
		switch {
		case strings.Contains(r.Query, "watch=1"):
			verb = "watch"
		case verb == "" && len(parts) == 1:
			verb = "list"
		case verb == "":
			verb = "get"
		}
		if len(parts) == 3 {
			resource = path.Join(resource, parts[2])
		}
		used[verb+" "+resource] = true
	}
	return slices.Sorted(maps.Keys(used))
}

var rule = regexp.MustCompile(`resources: \[(.*)\]\n +verbs: \[(.*)\]`)

// Granted lists the rights of the ClusterRole in a manifest, in the form of Used.
func Granted(t testing.TB, manifest string) (rights []string) {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rule.FindAllStringSubmatch(string(text), -1) {
		for verb := range strings.SplitSeq(r[2], ", ") {
			rights = append(rights, verb+" "+r[1])
		}
	}
	slices.Sort(rights)
	return rights
}
