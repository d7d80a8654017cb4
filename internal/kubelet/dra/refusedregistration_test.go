package dra_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// registrationLog keeps the messages about the registration, with their reasons.
type registrationLog struct {
	slog.Handler // its methods that the log does not override are not called
	mu           sync.Mutex
	lines        []string
}

func (l *registrationLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *registrationLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			line += ": " + a.Value.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// take returns the messages since the last call.
func (l *registrationLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// registrar makes the calls of a kubelet that registers a driver.
type registrar struct {
	*testing.T
	socket string
}

// notify connects, as the kubelet does for each attempt, and reports its result. An empty refusal
// means success. The returned function closes the connection.
func (r registrar) notify(refusal string) (hangUp func()) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+r.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	hangUp = sync.OnceFunc(func() { _ = conn.Close() })
	r.Cleanup(hangUp)
	kubelet := registration.NewRegistrationClient(conn)
	// The file of a socket exists shortly before the socket accepts connections.
	if _, err := kubelet.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
		r.Fatal(err)
	}
	status := &registration.RegistrationStatus{PluginRegistered: refusal == "", Error: refusal}
	if _, err := kubelet.NotifyRegistrationStatus(ctx, status); err != nil {
		r.Fatalf("NotifyRegistrationStatus with the error %q: %v", refusal, err)
	}
	return hangUp
}

// The kubelet tries a refused registration again with the same socket, each time over a new
// connection, with pauses of 500 ms to two minutes (operation_generator.go of
// pkg/kubelet/pluginmanager/operationexecutor, 1.36 and 1.37). The driver keeps the socket, logs a
// reason once, and is registered by the attempt that succeeds.
func TestKubeletTriesARefusedRegistrationAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, kubelettest.Options{})
	// The calls below are the only ones.
	b.kubelet.Stop()
	log := &registrationLog{}
	b.options.Log = slog.New(log)
	s, _ := b.serve()
	var sockets []string
	b.until("socket", func() bool {
		sockets, _ = filepath.Glob(filepath.Join(b.options.Registry, "*"))
		return len(sockets) == 1
	})
	before, err := os.Stat(sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	kubelet := registrar{t, sockets[0]}

	// wantLog compares the messages since the last comparison. They precede the answer to a call.
	wantLog := func(step string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, log.take()); diff != "" {
			t.Errorf("log after %s (-want +got):\n%s", step, diff)
		}
	}
	wantRefused := func(step, reason string) {
		t.Helper()
		if got := s.Status(); got.Registered || got.Reason != reason {
			t.Errorf("status after %s: %+v, want the reason %q", step, got, reason)
		}
		if got := s.Problem("usb:1"); got != reason {
			t.Errorf("problem of a device after %s: %q, want %q", step, got, reason)
		}
	}
	wantRegistered := func(step string) {
		t.Helper()
		if got, want := s.Status(), (dra.Status{Registered: true}); got != want {
			t.Errorf("status after %s: %+v, want %+v", step, got, want)
		}
		if got := s.Problem("usb:1"); got != "" {
			t.Errorf("problem of a device after %s: %q", step, got)
		}
	}
	const prefix = "the kubelet refuses the driver, which needs Kubernetes 1.34 or later: "
	const noHandler = "RegisterPlugin error -- no handler registered for plugin type: DRAPlugin"
	const invalid = "RegisterPlugin error -- plugin validation failed with err: no supported version"

	kubelet.notify(noHandler)()
	wantRefused("the first refusal", prefix+noHandler)
	wantLog("the first refusal", "INFO not registered: "+prefix+noHandler)
	for range 3 {
		kubelet.notify(noHandler)()
	}
	wantRefused("the same refusals", prefix+noHandler)
	wantLog("the same refusals")
	kubelet.notify(invalid)()
	wantRefused("another refusal", prefix+invalid)
	wantLog("another refusal", "INFO not registered: "+prefix+invalid)

	hangUp := kubelet.notify("")
	wantRegistered("a success")
	wantLog("a success", "INFO registered")

	// The next kubelet has no handler for DRA, and the one after it has. Until it decides, a
	// connection counts as the accepted kubelet, which connects again without another registration
	// (monitoredPlugin.HandleConn of pkg/kubelet/cm/dra/plugin, 1.36). So only the last message is
	// compared.
	hangUp()
	b.until("disconnected", func() bool {
		return slices.Contains(log.take(), "INFO not registered: the kubelet has disconnected")
	})
	kubelet.notify(noHandler)
	wantRefused("a refusal of a registered driver", prefix+noHandler)
	lines := log.take()
	if want := "INFO not registered: " + prefix + noHandler; len(lines) == 0 || lines[len(lines)-1] != want {
		t.Errorf("log after a refusal of a registered driver: %q, want the last message %q", lines, want)
	}
	kubelet.notify("")
	wantRegistered("the second success")
	wantLog("the second success", "INFO registered")

	if now, err := os.Stat(sockets[0]); err != nil || !os.SameFile(before, now) {
		t.Errorf("the refusals replaced the socket: %v", err)
	}
}
