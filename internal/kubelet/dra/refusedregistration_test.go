package dra_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// notify connects to a socket, as the kubelet does for each attempt to register the driver, and reports
// its result. An empty refusal means success. The connection stays open until the test ends.
func (b *bed) notify(socket, refusal string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	kubelet := registration.NewRegistrationClient(conn)
	// The file of a socket exists shortly before the socket accepts connections.
	if _, err := kubelet.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
		b.Fatal(err)
	}
	status := &registration.RegistrationStatus{PluginRegistered: refusal == "", Error: refusal}
	if _, err := kubelet.NotifyRegistrationStatus(ctx, status); err != nil {
		b.Fatalf("NotifyRegistrationStatus with the error %q: %v", refusal, err)
	}
}

// The kubelet tries a refused registration again with the same socket, each time over a new
// connection, with pauses of 500 ms to two minutes (operation_generator.go of
// pkg/kubelet/pluginmanager/operationexecutor, 1.36 and 1.37). The driver keeps the socket, and is
// registered by the attempt that succeeds. The next kubelet may refuse it again.
func TestKubeletTriesARefusedRegistrationAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.kubelet.Stop() // the calls below are the only ones
	s, _ := b.serve()
	var sockets []string
	b.until("socket", func() bool {
		sockets, _ = filepath.Glob(filepath.Join(b.options.Registry, "*"))
		return len(sockets) == 1
	})
	before, err := os.Stat(sockets[0])
	must(t, err)
	const prefix = "the kubelet refuses the driver, which needs Kubernetes 1.34 or later: "
	for i, refusal := range []string{"no handler", "no handler", "no supported version", "", "no handler", ""} {
		b.notify(sockets[0], refusal)
		want := ""
		if refusal != "" {
			want = prefix + refusal
		}
		got := s.Status()
		if got.Registered != (refusal == "") || got.Reason != want || s.Problem("usb:1") != want {
			t.Errorf("after attempt %d: %+v, problem %q, want %q", i, got, s.Problem("usb:1"), want)
		}
	}
	if now, err := os.Stat(sockets[0]); err != nil || !os.SameFile(before, now) {
		t.Errorf("the refusals replaced the socket: %v", err)
	}
}
