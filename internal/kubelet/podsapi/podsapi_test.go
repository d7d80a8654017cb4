package podsapi

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

const limit = 20 * time.Second

// watched is a call of Watch.
type watched struct {
	*testing.T
	kubelet *kubelettest.Kubelet
	ended   chan struct{} // a value for each call of ended
	err     chan error
}

func watch(t *testing.T, ctx context.Context) watched {
	t.Helper()
	dir := kubelettest.TempDir(t)
	socket := filepath.Join(dir, "pods-api", "pods-api.sock")
	w := watched{
		T:       t,
		kubelet: kubelettest.New(kubelettest.Options{Dir: filepath.Join(dir, "dp"), PodsAPI: socket}),
		ended:   make(chan struct{}, 100),
		err:     make(chan error, 1),
	}
	t.Cleanup(w.kubelet.Stop)
	if err := w.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	w.kubelet.Hold(kubelettest.Request{Namespace: "d", Pod: "first", Container: "c"}, "a")
	go func() {
		w.err <- Watch(ctx, socket, func() { w.ended <- struct{}{} })
	}()
	return w
}

// want waits for a call of ended, and checks that it was the only one.
func (w watched) want(what string) {
	w.Helper()
	select {
	case <-w.ended:
	case err := <-w.err:
		w.Fatalf("%s: the watch ended: %v", what, err)
	case <-time.After(limit):
		w.Fatalf("%s: not announced within %s", what, limit)
	}
	if n := len(w.ended); n > 0 {
		w.Errorf("%s: announced %d more times", what, n)
	}
}

func (w watched) wantEnd(what string) {
	w.Helper()
	select {
	case err := <-w.err:
		if err == nil {
			w.Errorf("%s: want an error", what)
		}
	case <-time.After(limit):
		w.Errorf("%s: the watch has not ended within %s", what, limit)
	}
}

// Only the beginning and the ends of pods are announced, whatever else changes.
func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := watch(t, ctx)
	w.want("the beginning")
	for range 3 {
		w.kubelet.Touch(100)
		w.kubelet.Remove("d", "first")
		w.want("the end of a pod")
	}
	cancel()
	w.wantEnd("cancelled")
}

func TestEndOfKubelet(t *testing.T) {
	t.Parallel()
	w := watch(t, t.Context())
	w.want("the beginning")
	w.kubelet.Stop()
	w.wantEnd("the kubelet has stopped")
	if err := Watch(t.Context(), filepath.Join(t.TempDir(), "none.sock"), nil); err == nil {
		t.Error("no error without a socket")
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/var/lib/kubelet/pod-resources/kubelet.sock": "/var/lib/kubelet/pods-api/pods-api.sock",
		"/var/lib/k0s/kubelet/pod-resources/k.sock":   "/var/lib/k0s/kubelet/pods-api/pods-api.sock",
		"/tmp/pods.sock": "",
		"":               "",
	} {
		if got := Socket(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, event := range []*podsv1alpha1.WatchPodsEvent{
		{},
		{Type: podsv1alpha1.EventType_DELETED, Pod: []byte("a pod")},
		{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE},
		{Type: podsv1alpha1.EventType_MODIFIED, Pod: bytes.Repeat([]byte("x"), 1000)},
	} {
		text, err := proto.Marshal(event)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got eventType
		err := codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, &got)
		var want podsv1alpha1.WatchPodsEvent
		if proto.Unmarshal(text, &want) != nil || len(want.ProtoReflect().GetUnknown()) > 0 {
			return // the kubelet writes no such event
		}
		if err != nil || podsv1alpha1.EventType(got) != want.GetType() {
			t.Errorf("%x: %d, %v, want %v", text, got, err, want.GetType())
		}
	})
}

// endless sends an event whenever it gets a value: the change of a pod of 10 kB.
type endless struct {
	podsv1alpha1.UnimplementedPodsServer
	next chan podsv1alpha1.EventType
}

func (e endless) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	pod := bytes.Repeat([]byte("x"), 10_000)
	for kind := range e.next {
		if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: kind, Pod: pod}); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkEvent is the cost of a change of a pod while a device waits, of the kubelet and this
// program together.
func BenchmarkEvent(b *testing.B) {
	socket := filepath.Join(kubelettest.TempDir(b), "pods-api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	e := endless{next: make(chan podsv1alpha1.EventType)}
	podsv1alpha1.RegisterPodsServer(server, e)
	go func() { _ = server.Serve(l) }()
	b.Cleanup(server.Stop)
	ended := make(chan struct{})
	go func() { _ = Watch(b.Context(), socket, func() { close(ended) }) }()
	b.ReportAllocs()
	for b.Loop() {
		e.next <- podsv1alpha1.EventType_MODIFIED
	}
	e.next <- podsv1alpha1.EventType_DELETED
	<-ended
	close(e.next)
}
