package plugin

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/device"
)

// fakeStream is the server's end of a ListAndWatch stream.
type fakeStream struct {
	ctx   context.Context
	began time.Time

	mu   sync.Mutex
	sent []string // "10ms a b!": time and IDs, with ! if unhealthy
}

func (f *fakeStream) Context() context.Context { return f.ctx }

func (f *fakeStream) Send(resp *v1beta1.ListAndWatchResponse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := time.Since(f.began).String()
	for _, d := range resp.Devices {
		line += " " + d.ID
		if d.Health != v1beta1.Healthy {
			line += "!"
		}
	}
	f.sent = append(f.sent, line)
	return nil
}

func (f *fakeStream) SetHeader(metadata.MD) error  { return nil }
func (f *fakeStream) SendHeader(metadata.MD) error { return nil }
func (f *fakeStream) SetTrailer(metadata.MD)       {}
func (f *fakeStream) SendMsg(any) error            { return nil }
func (f *fakeStream) RecvMsg(any) error            { return nil }

// watchList runs a stream over source in a bubble until the test's end.
func watchList(t *testing.T, source Source) *fakeStream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeStream{ctx: ctx, began: time.Now()}
	s := testServer(source, nil)
	done := make(chan error, 1)
	go func() { done <- s.ListAndWatch(nil, f) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err == nil {
			t.Error("a cancelled stream ended without an error")
		}
		<-s.streamEnded.happened
	})
	synctest.Wait()
	return f
}

func (f *fakeStream) check(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(want, f.sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func TestStreamCoalesces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newSource(healthy("a")...)
		f := watchList(t, source)
		f.check(t, "0s a")

		// The first change at once, those within the window together.
		time.Sleep(10 * time.Millisecond)
		source.set(healthy("a", "b")...)
		time.Sleep(10 * time.Millisecond)
		source.set(healthy("a", "b", "c")...)
		time.Sleep(10 * time.Millisecond)
		source.set(append(healthy("a", "b"), unhealthy("c", "unplugged"))...)
		time.Sleep(time.Second)
		f.check(t, "0s a", "10ms a b", "60ms a b c!")

		// After the window, at once again.
		source.set(healthy("a", "b", "c")...)
		time.Sleep(time.Second)
		f.check(t, "0s a", "10ms a b", "60ms a b c!", "1.03s a b c")
	})
}

func TestStreamNeverRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newSource(append(healthy("a"), unhealthy("b", "one reason"))...)
		f := watchList(t, source)
		source.set(append(healthy("a"), unhealthy("b", "another reason"))...)
		time.Sleep(time.Second)
		// There and back within the window.
		source.set(healthy("a", "b")...)
		time.Sleep(10 * time.Millisecond)
		source.set(healthy("a")...)
		time.Sleep(10 * time.Millisecond)
		source.set(healthy("a", "b")...)
		time.Sleep(time.Second)
		f.check(t, "0s a b!", "1s a b")
	})
}

// panicSource panics instead of listing devices.
type panicSource struct{ *fakeSource }

func (panicSource) Devices() ([]device.Listed, <-chan struct{}) { panic("no list") }

func TestStreamPanic(t *testing.T) {
	t.Parallel()
	logs := &records{}
	s := testServer(panicSource{newSource()}, logs)
	if err := s.ListAndWatch(nil, &fakeStream{ctx: t.Context()}); err == nil {
		t.Error("want an error")
	}
	if got := logs.reasons("panic"); len(got) != 1 {
		t.Errorf("logged %q", got)
	}
	select {
	case <-s.streamEnded.happened:
	default:
		t.Error("the server does not report the end of its stream")
	}
}

// wireSize is the size of a list as gRPC writes it.
func wireSize(t *testing.T, list []device.Listed) int {
	t.Helper()
	data, err := encoding.GetCodecV2("proto").Marshal(listResponse(list))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	return data.Len()
}

// A list with all parts of the budget is never larger than the kubelet accepts: it would end the stream.
func TestAnyListIsAccepted(t *testing.T) {
	t.Parallel()
	for nodes := range 10 {
		slot := device.Listed{ID: strings.Repeat("x", device.MaxSlotID)}
		for n := range nodes {
			slot.NUMA = append(slot.NUMA, math.MaxInt32-n)
		}
		offer := device.Offer{NUMA: slot.NUMA}
		size := wireSize(t, []device.Listed{slot}) * device.MaxParts / offer.SlotParts(1)
		if size > 4<<20 {
			t.Errorf("with %d NUMA nodes, a list takes %d bytes", nodes, size)
		}
	}
}
