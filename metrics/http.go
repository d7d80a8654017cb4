// Package metrics says how the program is: /healthz and /readyz for probes,
// /metrics for Prometheus, and a status page for people, /status.json for their
// programs. Gauges are read from the running state when they are asked for.
package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
)

// State is the running program. All of it is answered at once: what has to be
// asked of others is waited for for a moment at the most.
type State interface {
	// Alive is nil when the host was looked at and the main loop goes round,
	// whether there is a kubelet or not.
	Alive() error
	// Ready is nil when every resource that has devices is registered, else
	// what is missing.
	Ready() error
	// Config is the configuration that is served.
	Config() Config
	// Status is all there is to say.
	Status(ctx context.Context) Status
}

// Listen opens the address of the listener, so that an address that can't be
// had is known before anything is served.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// Serve answers on l until ctx is cancelled.
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

// warning is what a probe says besides its result. The problems themselves may
// name serials, and who probes is not who may know them: the log has them.
func (m *Metrics) warning() string {
	if m.state.Config().Broken == nil {
		return ""
	}
	return "warning: the configuration on disk is broken, the last good one is served: see the log for each problem\n"
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

// private answers those who are on this machine, or in this pod, alone: what is
// said names serials and pods. kubectl port-forward comes from there. A browser
// that was led here by another page names that page's host, and a proxy in the pod
// comes from another loopback address (127.0.0.6 is Istio's).
func private(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if err != nil || !isLoopback(from.Addr()) || !isLoopbackName(host) {
			http.Error(w, "403: the status names serials and pods, and is for 127.0.0.1 alone: kubectl port-forward leads there", http.StatusForbidden)
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
	_ = enc.Encode(m.state.Status(r.Context())) // who asked has gone
}

func (m *Metrics) statusPage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-store")
	_ = writePage(w, m.state.Status(r.Context()), time.Now()) // who asked has gone
}

// scrape writes all metrics in the text format, which every scraper takes.
func (m *Metrics) scrape(w http.ResponseWriter, _ *http.Request) {
	families, err := m.registry.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return // the scraper has gone
		}
	}
}
