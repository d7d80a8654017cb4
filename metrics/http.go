// Package metrics serves the state of the program: /healthz and /readyz for probes,
// /metrics for Prometheus, a status page for people and /status.json for programs.
// Gauges are read from the running state at scrape time.
package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// State is the state of the running program. Its methods must not block; Status may
// wait for the kubelet for half a second.
type State interface {
	// Alive is nil when the host was scanned and the main loop makes progress, with
	// or without a kubelet.
	Alive() error
	// Ready is nil when every resource with devices is registered.
	Ready() error
	Config() Config
	Status(ctx context.Context) Status
}

// Listen opens the listener, so that an unusable address fails before anything is
// served.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// Serve serves requests on l until ctx is cancelled.
func (m *Metrics) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.state.Alive(), "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.state.Ready(), m.warning()) })
	mux.HandleFunc("GET /metrics", m.scrape)
	mux.HandleFunc("GET /status.json", private(m.statusJSON))
	mux.HandleFunc("GET /{$}", private(m.statusPage))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// warning is added to the body of /readyz. It leaves out the problems themselves:
// they may name serials, which not every prober may know.
func (m *Metrics) warning() string {
	if m.state.Config().Broken == nil {
		return ""
	}
	return "warning: the configuration on disk is broken, the last good one is served: see the log\n"
}

func answer(w http.ResponseWriter, err error, warning string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text+"\n"+warning)
}

// private serves loopback clients only, kubectl port-forward included: the status
// names serials and pods. It checks the Host header against DNS rebinding in a
// browser, and refuses other loopback addresses, from which proxies in the pod forward
// foreign requests (127.0.0.6 is Istio's).
func private(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if err != nil || !isLoopback(from.Addr()) || !isLoopbackName(host) {
			http.Error(w, "403: the status names serials and pods and is served on 127.0.0.1 only: use kubectl port-forward", http.StatusForbidden)
			return
		}
		f(w, r)
	}
}

func isLoopback(a netip.Addr) bool {
	return a.Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
}

func isLoopbackName(host string) bool {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

func (m *Metrics) statusJSON(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(m.state.Status(r.Context())) // the client has gone
}

func (m *Metrics) statusPage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-store")
	_ = writePage(w, m.state.Status(r.Context()), time.Now()) // the client has gone
}

// scrape writes all metrics in the text format, which every scraper accepts.
func (m *Metrics) scrape(w http.ResponseWriter, _ *http.Request) {
	all := m.gauges()
	m.mu.Lock()
	maps.Copy(all, m.counted)
	text := all.text()
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // the scraper has gone
}
