// Package status serves the state of the program: /healthz and /readyz for probes,
// /metrics for Prometheus, a status page for people and /status.json for programs.
// Gauges are read from the running state at scrape time.
package status

import (
	"bytes"
	"context"
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

// State is the state of the running program. Its methods must not block. Any goroutine may call
// them.
type State interface {
	// Alive returns nil if the host was scanned and the main loop makes progress, with or
	// without a kubelet.
	Alive() error
	// Ready returns nil if every resource with devices is registered.
	Ready() error
}

// Node is the State of a program that serves devices.
type Node interface {
	State
	// Status returns the whole state. It may wait for the kubelet for half a second.
	Status(ctx context.Context) Status
}

// maxWait is how long a request waits for the responses to earlier ones.
const maxWait = 5 * time.Second

// Serve serves requests on l until ctx is cancelled, a single request on each connection. It closes
// l, and returns nil after ctx was cancelled.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:      http.HandlerFunc(m.answer),
		ReadTimeout:  connTime,
		WriteTimeout: connTime,
		// That handler would wait for the body of a request.
		DisableGeneralOptionsHandler: true,
		// Clients cause all errors of a server.
		ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, accepted net.Conn) context.Context {
			// A server does not notice that a connection is closed while data from it is unread.
			ctx, accepted.(*conn).cancel = context.WithCancel(ctx)
			return ctx
		},
	}
	// One request on each connection makes the limits of conn sufficient.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() {
		_ = server.Close()
	})
	defer stop()
	err := server.Serve(&limitedListener{Listener: l, closed: make(chan struct{}, 1)})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("--listen: %w", err)
}

// answer answers a request. Probes never wait for another request.
func (m *Metrics) answer(w http.ResponseWriter, r *http.Request) {
	out := &response{
		status: http.StatusOK,
		header: w.Header(),
	}
	out.header.Set("Content-Type", "text/plain; charset=utf-8")
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	isStatus := r.URL.Path == "/" || r.URL.Path == "/status.json"
	switch {
	case !isRead:
		out.fail(http.StatusMethodNotAllowed, "want GET")
	case r.URL.Path == "/healthz":
		out.probe(m.state.Alive())
	case r.URL.Path == "/readyz":
		out.probe(m.state.Ready())
	// These responses take time and memory, so they are made one after the other.
	case r.URL.Path == "/metrics" || isStatus && m.node != nil:
		if m.awaitTurn(r.Context(), out) {
			// The semaphore is held until the response is sent, which may have megabytes.
			defer func() {
				<-m.rendering
			}()
			m.render(r.Context(), out, r)
		}
	default:
		out.fail(http.StatusNotFound, "want /, /metrics, /status.json, /healthz or /readyz")
	}
	out.send(w)
	if r.ContentLength != 0 {
		// The server would wait for the body, and then half a second.
		panic(http.ErrAbortHandler)
	}
}

// awaitTurn waits until no other response is rendered or sent. It reports false after maxWait,
// and aborts the request if its client is gone.
func (m *Metrics) awaitTurn(ctx context.Context, out *response) bool {
	select {
	case m.rendering <- struct{}{}:
		return true
	case <-time.After(maxWait):
		out.header.Set("Retry-After", "1")
		out.fail(http.StatusServiceUnavailable, "another request is being answered")
		return false
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// response is a response whose body is buffered. The length is known before the first byte is sent,
// and an error can replace the whole response.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// fail makes an error the response. It must precede anything that is written to the body.
func (out *response) fail(status int, reason string) {
	out.status = status
	fmt.Fprintf(&out.body, "%d: %s\n", status, reason)
}

// probe makes the result of a probe the response.
func (out *response) probe(err error) {
	text := "ok"
	if err != nil {
		out.status = http.StatusServiceUnavailable
		text = err.Error()
	}
	out.body.WriteString(text + "\n")
}

// send sends the response. An error means that the client is gone.
func (out *response) send(w http.ResponseWriter) {
	out.header.Set("Content-Length", strconv.Itoa(out.body.Len()))
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body.Bytes())
	_ = http.NewResponseController(w).Flush()
}

// render writes the response for /metrics, / or /status.json.
func (m *Metrics) render(ctx context.Context, out *response, r *http.Request) {
	if r.URL.Path == "/metrics" {
		m.scrape(ctx, out)
		return
	}
	if !isLocal(r.RemoteAddr, r.Host) {
		out.fail(http.StatusForbidden, "the status contains serial numbers and pod names and is only served on 127.0.0.1: use kubectl port-forward")
		return
	}
	if r.URL.Path == "/" {
		out.header.Set("Content-Type", "text/html; charset=utf-8")
		out.header.Set("Content-Security-Policy", policy())
		out.header.Set("Cache-Control", "no-store")
		out.body.WriteString(page)
		return
	}
	out.header.Set("Content-Type", "application/json")
	writeStatus(&out.body, m.node.Status(ctx), time.Now())
}

// loopback is the IPv4 address of local clients. Proxies in the pod use other addresses of
// 127.0.0.0/8 for requests from elsewhere: Istio uses 127.0.0.6.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// isLocal reports whether a request comes over loopback, which includes kubectl port-forward.
// Only such a client gets the status, which contains serial numbers and pod names. The Host
// header is checked against DNS rebinding in a browser.
func isLocal(client, host string) bool {
	from, err := netip.ParseAddrPort(client)
	if err != nil {
		return false
	}
	// An IPv4 address is the same on both kinds of sockets.
	ip := from.Addr().Unmap()
	if ip != loopback && ip != netip.IPv6Loopback() {
		return false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	host = strings.Trim(host, "[]")
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// scrape writes all metrics in Prometheus's text format. The lock is taken after the status was
// made, because that may take half a second.
func (m *Metrics) scrape(ctx context.Context, out *response) {
	out.header.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if m.node != nil {
		out.body.Write(gauges(m.node.Status(ctx)).text())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out.body.Write(m.events.text())
}
