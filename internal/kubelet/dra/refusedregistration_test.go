package dra_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

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
// pkg/kubelet/pluginmanager/operationexecutor, 1.36 and 1.37). The driver keeps the socket, and is
// registered by the attempt that succeeds.
func TestKubeletTriesARefusedRegistrationAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, kubelettest.Options{})
	// The calls below are the only ones.
	b.kubelet.Stop()
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
	for range 3 {
		kubelet.notify(noHandler)()
	}
	wantRefused("the same refusals", prefix+noHandler)
	kubelet.notify(invalid)()
	wantRefused("another refusal", prefix+invalid)

	hangUp := kubelet.notify("")
	wantRegistered("a success")

	// The next kubelet has no handler for DRA, and the one after it has.
	hangUp()
	b.until("disconnected", func() bool { return !s.Status().Registered })
	kubelet.notify(noHandler)
	wantRefused("a refusal of a registered driver", prefix+noHandler)
	kubelet.notify("")
	wantRegistered("the second success")

	if now, err := os.Stat(sockets[0]); err != nil || !os.SameFile(before, now) {
		t.Errorf("the refusals replaced the socket: %v", err)
	}
}
