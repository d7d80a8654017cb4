package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// bench is a Prober with a fake host.
type bench struct {
	*Prober
	t     *testing.T
	start time.Time
	stop  func()

	mu     sync.Mutex
	opened map[string][]time.Duration // since the start, by node
	fails  map[string]error
	hangs  map[string]chan struct{} // closed when the open returns
}

// newBench runs a Prober in a synctest bubble until the test ends.
func newBench(t *testing.T) *bench {
	b := &bench{
		Prober: New(below("")), t: t, start: time.Now(),
		opened: map[string][]time.Duration{}, fails: map[string]error{}, hangs: map[string]chan struct{}{},
	}
	b.host.open = b.open
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (b *bench) open(path string) error {
	b.mu.Lock()
	b.opened[path] = append(b.opened[path], time.Since(b.start))
	err, hang := b.fails[path], b.hangs[path]
	b.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func (b *bench) fail(path string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails[path] = err
}

// hang makes opening a node wait until the returned function is called.
func (b *bench) hang(path string) (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hang := make(chan struct{})
	b.hangs[path] = hang
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.hangs, path)
		close(hang)
	}
}

func (b *bench) times(path string) []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.opened[path])
}

// after advances the time until all goroutines are blocked.
func (b *bench) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) want(reasons map[string]string) {
	b.t.Helper()
	if got := b.Results(); !maps.Equal(got, reasons) {
		b.t.Errorf("%v after the start: results %q, want %q", time.Since(b.start), got, reasons)
	}
}

// changed reports whether a change was signalled since the last call.
func (b *bench) changed() bool {
	select {
	case <-b.Changes():
		return true
	default:
		return false
	}
}

func opens(interval time.Duration, nodes ...string) Check {
	return Check{Open: nodes, Interval: interval}
}

const s = time.Second

func TestNewDeviceIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail("/dev/b", unix.EIO)
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a"), "b": opens(30*s, "/dev/b")})
		b.want(map[string]string{"a": ReasonPending, "b": ReasonPending})
		b.after(0)
		b.want(map[string]string{"a": "", "b": "open /dev/b: input/output error"})
		if !b.changed() {
			t.Error("no change was signalled")
		}
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a"), "b": opens(30*s, "/dev/b")})
		b.after(0)
		if got := b.times("/dev/a"); len(got) != 1 {
			t.Errorf("an unchanged device was checked again: %v", got)
		}
		if b.changed() {
			t.Error("a change was signalled though nothing changed")
		}
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a")})
		b.want(map[string]string{"a": ""})
	})
}

// The result of another node does not count.
func TestMovedDeviceIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a0")})
		b.after(0)
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a1")})
		b.want(map[string]string{"a": ReasonPending})
		b.after(0)
		b.want(map[string]string{"a": ""})
		b.Set(map[string]Check{"a": opens(60*s, "/dev/a1")})
		b.want(map[string]string{"a": ""})
	})
}

func TestResultsAreImmutable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a")})
		first := b.Results()
		b.after(0)
		b.Set(nil)
		if len(first) != 1 || first["a"] != ReasonPending || len(b.Results()) != 0 {
			t.Errorf("results are %q, and those from before %q", b.Results(), first)
		}
	})
}

func TestChecksFollowTheirInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.after(7 * s)
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a"), "b": opens(60*s, "/dev/b")})
		b.after(160 * s)
		// The second check follows the first by half an interval or more, and
		// both intervals coincide.
		for path, want := range map[string][]time.Duration{
			"/dev/a": {7 * s, 30 * s, 60 * s, 90 * s, 120 * s, 150 * s},
			"/dev/b": {7 * s, 60 * s, 120 * s},
		} {
			if got := b.times(path); !slices.Equal(got, want) {
				t.Errorf("%s was opened at %v, want %v", path, got, want)
			}
		}
	})
}

// A failed check is repeated with a growing delay, and the device recovers.
func TestDeviceRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(map[string]Check{"a": opens(20*s, "/dev/a")})
		b.after(10 * s)
		b.changed()
		b.fail("/dev/a", unix.ENODEV)
		b.after(10 * s)
		b.want(map[string]string{"a": "open /dev/a: no such device"})
		if !b.changed() {
			t.Error("the failure was not signalled")
		}
		b.after(69 * s)
		if b.changed() {
			t.Error("a change was signalled though the reason is the same")
		}
		b.fail("/dev/a", nil)
		b.after(s + 20*s)
		b.want(map[string]string{"a": ""})
		want := []time.Duration{0, 20 * s, 21 * s, 23 * s, 27 * s, 35 * s, 60 * s, 80 * s, 100 * s}
		if got := b.times("/dev/a"); !slices.Equal(got, want) {
			t.Errorf("opened at %v, want %v", got, want)
		}
	})
}

// A busy node passes: a container has opened it exclusively.
func TestBusyPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail("/dev/a", fmt.Errorf("open: %w", unix.EBUSY))
		b.Set(map[string]Check{"a": opens(30*s, "/dev/a")})
		b.after(0)
		b.want(map[string]string{"a": ""})
	})
}

// A hung check stays one goroutine and does not delay others.
func TestHungCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := b.hang("/dev/a")
		b.Set(map[string]Check{"a": opens(10*s, "/dev/a"), "b": opens(10*s, "/dev/b")})
		b.after(timeout - 1)
		b.want(map[string]string{"a": ReasonPending, "b": ""})
		b.after(1)
		b.want(map[string]string{"a": "open /dev/a: does not answer", "b": ""})
		b.after(95 * s)
		b.want(map[string]string{"a": "open /dev/a: does not answer", "b": ""})
		if got := b.times("/dev/a"); len(got) != 1 {
			t.Errorf("started again while it hung: %v", got)
		}
		if got := b.times("/dev/b"); len(got) != 11 {
			t.Errorf("the other was opened at %v, want 11 times", got)
		}
		release()
		b.after(0)
		b.want(map[string]string{"a": "", "b": ""})
		b.after(10 * s)
		if got := b.times("/dev/a"); len(got) != 2 {
			t.Errorf("opened at %v, want once more", got)
		}
	})
}

// A device is replugged while its check hangs: no second check starts, and the result
// of the first does not count for the new device.
func TestReplugDuringHungCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := b.hang("/dev/a0")
		b.fail("/dev/a0", unix.EIO)
		b.Set(map[string]Check{"a": opens(10*s, "/dev/a0")})
		for range 3 {
			b.after(s)
			b.Set(nil)
			b.want(map[string]string{})
			b.Set(map[string]Check{"a": opens(10*s, "/dev/a1")})
			b.want(map[string]string{"a": ReasonPending})
		}
		b.after(2 * s)
		b.want(map[string]string{"a": "open /dev/a0: does not answer"})
		b.after(60 * s)
		if a0, a1 := b.times("/dev/a0"), b.times("/dev/a1"); len(a0) != 1 || len(a1) != 0 {
			t.Errorf("opened at %v and %v, want once and never", a0, a1)
		}
		release()
		b.after(0)
		b.want(map[string]string{"a": ""})
	})
}

func TestNoTimerWithoutChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(map[string]Check{"a": opens(5*s, "/dev/a")})
		b.after(s)
		b.Set(nil)
		b.after(time.Hour)
		if next := b.round(t.Context()); !next.IsZero() {
			t.Errorf("next round at %v", next)
		}
		if got := b.times("/dev/a"); len(got) != 1 {
			t.Errorf("opened at %v after the device had gone", got)
		}
	})
}

func TestRunEndsDuringHungCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := b.hang("/dev/a")
		b.Set(map[string]Check{"a": opens(10*s, "/dev/a")})
		b.after(s)
		b.stop()
		release()
		b.after(0)
		b.want(map[string]string{"a": ReasonPending})
	})
}

func TestOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		h := newHost(func(path string) string { return "/host" + path })
		h.open = func(path string) error {
			switch path {
			case "/host/dev/good":
				time.Sleep(s)
				return nil
			case "/host/dev/hangs":
				<-hang
			}
			return errors.New(path)
		}
		began := time.Now()
		got := once(t.Context(), h, map[string]Check{"good": opens(0, "/dev/good"), "bad": opens(0, "/dev/bad"), "hangs": opens(0, "/dev/hangs")}, 2*s)
		want := map[string]string{"good": "", "bad": "open /dev/bad: /host/dev/bad", "hangs": "open /dev/hangs: does not answer"}
		if !maps.Equal(got, want) {
			t.Errorf("once: %q, want %q", got, want)
		}
		if took := time.Since(began); took != 2*s {
			t.Errorf("took %v, want the limit", took)
		}
		if got := once(t.Context(), h, nil, 2*s); len(got) != 0 {
			t.Errorf("nothing to check gives %q", got)
		}
	})
}
