// Package metrics says how the program is: /healthz and /readyz for probes,
// /metrics for Prometheus. Gauges are read from the running state when they
// are asked for.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
)

// State is the running program.
type State interface {
	// Ready is nil when the configuration is loaded and every resource that
	// has devices is registered, else what is missing. Being alive is
	// answering at all: it does not depend on the kubelet.
	Ready() error
	// Config is the configuration that is served.
	Config() Config
	// Resources in the order of the configuration, then those that are being
	// retired.
	Resources() []Resource
	// Degraded names the sources of events that are not to be had.
	Degraded() []string
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
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.state.Ready(), m.warning()) })
	mux.HandleFunc("GET /metrics", m.scrape)
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
