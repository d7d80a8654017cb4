// Package status serves the state of the program: /healthz and /readyz for probes,
// /metrics for Prometheus, a status page for people and /status.json for programs.
// Gauges are read from the running state at scrape time.
package status

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// State is the state of the running program. Its methods must not block.
type State interface {
	// Alive is nil when the host was scanned and the main loop makes progress, with
	// or without a kubelet.
	Alive() error
	// Ready is nil when every resource with devices is registered.
	Ready() error
}

// Node is the State of a program that serves devices. Status may wait for the kubelet for
// half a second.
type Node interface {
	State
	Config() Config
	LeftOut() LeftOut
	Status(ctx context.Context) Status
}

// maxWait is how long a request waits for the responses to earlier ones.
const maxWait = 5 * time.Second

// connKey is the key of the connection of a request in its context.
type connKey struct{}

// Serve serves requests on l until ctx is cancelled, one a connection.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	limited := newLimitedListener(l)
	server := &http.Server{
		Handler:           http.HandlerFunc(m.answer),
		ReadHeaderTimeout: connTime,
		MaxHeaderBytes:    maxRequest, // conn has the same limit for a whole request
		// It would wait for the body of a request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0), // of errors that clients cause
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = limited.Close() })
	defer stop()
	err := server.Serve(limited)
	_ = limited.Close()
	limited.serving.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("--listen: %w", err)
}

// answer answers a request.
func (m *Metrics) answer(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*conn)
	out := &response{
		status: http.StatusOK,
		header: w.Header(),
	}
	out.header.Set("Content-Type", "text/plain; charset=utf-8")
	isRendered := r.URL.Path == "/metrics" || m.node != nil && (r.URL.Path == "/status.json" || r.URL.Path == "/")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		out.fail(http.StatusMethodNotAllowed, "want GET")
	case r.URL.Path == "/healthz":
		out.probe(m.state.Alive(), "")
	case r.URL.Path == "/readyz":
		out.probe(m.state.Ready(), m.warning())
	case isRendered:
		c.enter(stageUnfinished, time.Time{})
		// One at a time, until it is sent: a response may have megabytes.
		select {
		case m.rendering <- struct{}{}:
			defer func() { <-m.rendering }()
			m.render(c.ended, out, r)
		case <-time.After(maxWait):
			out.header.Set("Retry-After", "1")
			out.fail(http.StatusServiceUnavailable, "another request is being answered")
		case <-c.ended.Done():
			panic(http.ErrAbortHandler)
		}
	default:
		out.fail(http.StatusNotFound, "want /, /metrics, /status.json, /healthz or /readyz")
	}
	out.send(w)
	c.enter(stageAnswered, time.Time{})
	if r.ContentLength != 0 {
		// The server would wait for the body, and then half a second.
		panic(http.ErrAbortHandler)
	}
}

// response is a response whose body is buffered.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (out *response) fail(status int, reason string) {
	out.status = status
	fmt.Fprintf(&out.body, "%d: %s\n", status, reason)
}

func (out *response) probe(err error, warning string) {
	text := "ok"
	if err != nil {
		out.status = http.StatusServiceUnavailable
		text = err.Error()
	}
	out.body.WriteString(text + "\n" + warning)
}

// send sends the response. An error means that the client is gone.
func (out *response) send(w http.ResponseWriter) {
	out.header.Set("Content-Length", strconv.Itoa(out.body.Len()))
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body.Bytes())
	_ = http.NewResponseController(w).Flush()
}

// warning is added to the body of /readyz. It leaves out the problems themselves, which
// may name serials: every prober reads it.
func (m *Metrics) warning() string {
	if m.node == nil {
		return ""
	}
	var warnings []string
	if m.node.Config().Broken != nil {
		warnings = append(warnings, "the configuration on disk is broken, the last good one is served: see the log")
	}
	for _, line := range m.node.LeftOut().Lines() {
		warnings = append(warnings, line+": see the log")
	}
	text := ""
	for _, warning := range warnings {
		text += "warning: " + warning + "\n"
	}
	return text
}

// render writes the response for /metrics, / or /status.json.
func (m *Metrics) render(ctx context.Context, out *response, r *http.Request) {
	if r.URL.Path == "/metrics" {
		m.scrape(ctx, out)
		return
	}
	c := r.Context().Value(connKey{}).(*conn)
	if !isLocal(c.from, r.Host) {
		out.fail(http.StatusForbidden, "the status names serials and pods and is served on 127.0.0.1 only: use kubectl port-forward")
		return
	}
	if r.URL.Path == "/" {
		out.header.Set("Content-Type", "text/html; charset=utf-8")
		out.header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		out.header.Set("Cache-Control", "no-store")
		writePage(&out.body, m.node.Status(ctx), time.Now())
		return
	}
	out.header.Set("Content-Type", "application/json")
	enc := json.NewEncoder(&out.body)
	enc.SetIndent("", "  ")
	_ = enc.Encode(m.node.Status(ctx)) // every field can be encoded
}

// isLocal reports whether a request comes over loopback, kubectl port-forward included:
// only such a client gets the status, which names serials and pods. The Host header is
// checked against DNS rebinding in a browser. Other loopback addresses are those of
// proxies in the pod, which forward foreign requests (127.0.0.6 is Istio's).
func isLocal(client netip.Addr, host string) bool {
	isLoopback := client == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || client == netip.IPv6Loopback()
	if !isLoopback {
		return false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.Unmap().IsLoopback()
}

// scrape writes all metrics in Prometheus's text format.
func (m *Metrics) scrape(ctx context.Context, out *response) {
	out.header.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if m.node != nil {
		out.body.Write(gauges(m.node.Status(ctx)).text())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out.body.Write(m.events.text())
}
