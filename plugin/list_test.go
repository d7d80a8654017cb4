package plugin

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/device"
)

// fakeStream is the server's end of a ListAndWatch stream.
type fakeStream struct {
	ctx   context.Context
	began time.Time

	mu   sync.Mutex
	sent []string // "10ms a b!": when, which, and what is unhealthy
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
	s := testSession(source, Hooks{}, nil)
	done := make(chan error, 1)
	go func() { done <- s.ListAndWatch(nil, f) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err == nil {
			t.Error("a cancelled stream ended without an error")
		}
		<-s.ended
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

		// And then at once again.
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

func TestStreamOfAnEmptyList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := watchList(t, newSource())
		f.check(t, "0s")
	})
}

func TestStreamEndsWithTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testSession(newSource(healthy("a")...), Hooks{}, nil)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- s.ListAndWatch(nil, &fakeStream{ctx: t.Context()}) }()
		}
		synctest.Wait()
		close(s.quit)
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("got %v", err)
			}
		}
	})
}

// panicSource falls when it is asked for the list.
type panicSource struct{ *fakeSource }

func (panicSource) Devices() ([]device.Listed, <-chan struct{}) { panic("no list") }

func TestStreamPanic(t *testing.T) {
	t.Parallel()
	logs := &records{}
	s := testSession(panicSource{newSource()}, Hooks{}, logs)
	if err := s.ListAndWatch(nil, &fakeStream{ctx: t.Context()}); err == nil {
		t.Error("want an error")
	}
	if got := logs.reasons("panic"); len(got) != 1 {
		t.Errorf("logged %q", got)
	}
	select {
	case <-s.ended:
	default:
		t.Error("the session does not know that its stream ended")
	}
}

// The longest list that the kubelet takes goes through, a longer one is kept
// back without harm to the stream.
func TestLongestList(t *testing.T) {
	t.Parallel()
	list := make([]device.Listed, 0, 167773)
	for i := range 167773 { // 25 bytes each
		list = append(list, device.Listed{ID: fmt.Sprintf("0000:%07x", i), Healthy: true})
	}
	fits := list[:len(list)-1]
	if got := MessageSize(fits); got > MaxMessage || got < MaxMessage-25 {
		t.Fatalf("MessageSize: got %d, want just below %d", got, MaxMessage)
	}
	n := newNode(t).up()
	source := newSource(list...)
	p, _ := n.plugin(gpu, source, func(p *Plugin) { p.timing.window = 0 })
	n.waitReason(p, func(r string) bool {
		return r == "the list of 167773 devices takes 4194325 bytes: the kubelet takes at most 4194304"
	})
	source.set(fits...)
	n.waitAllocatable(gpu, len(fits))
	source.set(list...)
	source.set(healthy("a")...)
	n.waitAllocatable(gpu, 1)
	if got := n.Registrations(gpu); got != 1 {
		t.Errorf("registrations: got %d, want 1", got)
	}
	// The kubelet names every free device when it asks for a preference.
	ids := make([]string, len(fits))
	for i := range fits {
		ids[i] = fits[i].ID
	}
	if _, err := n.Prefer(n.ctx, gpu, ids, ids, len(ids)); err != nil {
		t.Error(err)
	}
}

func TestManyStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newSource(healthy("a")...)
		s := testSession(source, Hooks{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var streams []*fakeStream
		var group sync.WaitGroup
		for range 5 {
			f := &fakeStream{ctx: ctx, began: time.Now()}
			streams = append(streams, f)
			group.Go(func() { _ = s.ListAndWatch(nil, f) })
		}
		synctest.Wait()
		source.set(healthy("b")...)
		synctest.Wait()
		cancel()
		group.Wait()
		for _, f := range streams {
			f.check(t, "0s a", "0s b")
		}
	})
}
