// Package status serves the state of the program: /healthz and /readyz for probes,
// /metrics for Prometheus, a status page for people and /status.json for programs.
// Gauges are read from the running state at scrape time.
package status

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

// handle answers the request of a connection.
func (m *Metrics) handle(ctx context.Context, c net.Conn) {
	header := &io.LimitedReader{R: c, N: maxHeader}
	r, err := http.ReadRequest(bufio.NewReader(header))
	w := &response{Response: http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, Close: true,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
	}}
	switch {
	case err != nil && header.N == 0:
		w.fail(http.StatusRequestHeaderFieldsTooLarge, "the header is longer than 8 KiB")
	case err != nil:
		w.fail(http.StatusBadRequest, err.Error())
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.fail(http.StatusMethodNotAllowed, "want GET")
	case r.URL.Path == "/healthz":
		w.probe(m.state.Alive(), "")
	case r.URL.Path == "/readyz":
		w.probe(m.state.Ready(), m.warning())
	case r.URL.Path == "/metrics", m.node != nil && (r.URL.Path == "/status.json" || r.URL.Path == "/"):
		// One at a time, until it is sent: a response may have megabytes.
		select {
		case m.rendering <- struct{}{}:
			defer func() { <-m.rendering }()
			m.render(ctx, w, c.RemoteAddr())
		case <-time.After(maxWait):
			w.Header.Set("Retry-After", "1")
			w.fail(http.StatusServiceUnavailable, "another request is being answered")
		case <-ctx.Done():
			return
		}
	default:
		w.fail(http.StatusNotFound, "want /, /metrics, /status.json, /healthz or /readyz")
	}
	w.send(c)
}

// response is a response whose body is buffered.
type response struct {
	http.Response
	body bytes.Buffer
}

func (w *response) fail(status int, reason string) {
	w.StatusCode = status
	fmt.Fprintf(&w.body, "%d: %s\n", status, reason)
}

func (w *response) probe(err error, warning string) {
	text := "ok"
	if err != nil {
		w.StatusCode = http.StatusServiceUnavailable
		text = err.Error()
	}
	w.body.WriteString(text + "\n" + warning)
}

// send sends the response. An error means that the client is gone.
func (w *response) send(c net.Conn) {
	w.ContentLength, w.Body = int64(w.body.Len()), io.NopCloser(&w.body)
	out := bufio.NewWriter(c)
	_ = w.Write(out)
	_ = out.Flush()
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
func (m *Metrics) render(ctx context.Context, w *response, from net.Addr) {
	switch path := w.Request.URL.Path; {
	case path == "/metrics":
		m.scrape(ctx, w)
	case !isLocal(from, w.Request.Host):
		w.fail(http.StatusForbidden, "the status names serials and pods and is served on 127.0.0.1 only: use kubectl port-forward")
	case path == "/":
		w.Header.Set("Content-Type", "text/html; charset=utf-8")
		w.Header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.Header.Set("Cache-Control", "no-store")
		writePage(&w.body, m.node.Status(ctx), time.Now())
	default:
		w.Header.Set("Content-Type", "application/json")
		enc := json.NewEncoder(&w.body)
		enc.SetIndent("", "  ")
		_ = enc.Encode(m.node.Status(ctx)) // every field can be encoded
	}
}

// isLocal reports whether a request comes over loopback, kubectl port-forward included:
// only such a client gets the status, which names serials and pods. The Host header is
// checked against DNS rebinding in a browser. Other loopback addresses are those of
// proxies in the pod, which forward foreign requests (127.0.0.6 is Istio's).
func isLocal(from net.Addr, host string) bool {
	client := addressOf(from)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	name, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return (client == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || client == netip.IPv6Loopback()) &&
		(host == "localhost" || err == nil && name.Unmap().IsLoopback())
}

// scrape writes all metrics in Prometheus's text format.
func (m *Metrics) scrape(ctx context.Context, w *response) {
	w.Header.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if m.node != nil {
		w.body.Write(gauges(m.node.Status(ctx)).text())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w.body.Write(m.events.text())
}
