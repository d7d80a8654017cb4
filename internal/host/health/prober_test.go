package health

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// proberTest is a Prober with a fake host.
type proberTest struct {
	*Prober
	t     *testing.T
	start time.Time
	ctx   context.Context
	stop  context.CancelFunc

	mu     sync.Mutex
	opened map[string][]time.Duration // since the start, by node
	fails  map[string]error
	hangs  map[string]chan struct{} // closed when the open returns
}

// newProberTest runs a Prober in a synctest bubble until the test ends.
func newProberTest(t *testing.T) *proberTest {
	p := &proberTest{
		Prober: New(below("")), t: t, start: time.Now(),
		opened: map[string][]time.Duration{}, fails: map[string]error{}, hangs: map[string]chan struct{}{},
	}
	p.host.open = p.open
	p.ctx, p.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		p.stop()
		time.Sleep(timeout) // until the running checks have ended
	})
	return p
}

func (p *proberTest) Set(checks map[string]device.Check) { p.Prober.Set(p.ctx, checks) }

func (p *proberTest) open(path string) error {
	p.mu.Lock()
	p.opened[path] = append(p.opened[path], time.Since(p.start))
	err, hang := p.fails[path], p.hangs[path]
	p.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return err
}

func (p *proberTest) fail(path string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails[path] = err
}

// hang makes opening a node wait until the returned function is called.
func (p *proberTest) hang(path string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hang := make(chan struct{})
	p.hangs[path] = hang
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.hangs, path)
		close(hang)
	}
}

func (p *proberTest) times(path string) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.opened[path])
}

// advance advances the time, and waits until all goroutines are blocked.
func (p *proberTest) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (p *proberTest) want(reasons map[string]string) {
	p.t.Helper()
	if got := p.Results(); !maps.Equal(got, reasons) {
		p.t.Errorf("%v after the start: results %q, want %q", time.Since(p.start), got, reasons)
	}
}

// changed reports whether a change was signalled since the last call.
func (p *proberTest) changed() bool {
	select {
	case <-p.Changes():
		return true
	default:
		return false
	}
}

func opens(interval time.Duration, nodes ...string) device.Check {
	return device.Check{Open: nodes, Interval: interval}
}

const s = time.Second

func TestNewDeviceIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		p.fail("/dev/b", unix.EIO)
		p.Set(map[string]device.Check{"a": opens(30*s, "/dev/a"), "b": opens(30*s, "/dev/b")})
		p.want(map[string]string{"a": ReasonPending, "b": ReasonPending})
		p.advance(0)
		p.want(map[string]string{"a": "", "b": "open /dev/b: input/output error"})
		if !p.changed() {
			t.Error("no change was signalled")
		}
		p.Set(map[string]device.Check{"a": opens(30*s, "/dev/a"), "b": opens(30*s, "/dev/b")})
		p.advance(0)
		if got := p.times("/dev/a"); len(got) != 1 {
			t.Errorf("an unchanged device was checked again: %v", got)
		}
		if p.changed() {
			t.Error("a change was signalled though nothing changed")
		}
		p.Set(map[string]device.Check{"a": opens(30*s, "/dev/a")})
		p.want(map[string]string{"a": ""})
	})
}

// The result of another node does not count.
func TestMovedDeviceIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		p.Set(map[string]device.Check{"a": opens(30*s, "/dev/a0")})
		p.advance(0)
		p.Set(map[string]device.Check{"a": opens(30*s, "/dev/a1")})
		p.want(map[string]string{"a": ReasonPending})
		p.advance(0)
		p.want(map[string]string{"a": ""})
		p.Set(map[string]device.Check{"a": opens(60*s, "/dev/a1")})
		p.want(map[string]string{"a": ""})
	})
}

func TestChecksFollowTheirInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		p.advance(7 * s)
		p.Set(map[string]device.Check{"a": opens(30*s, "/dev/a"), "b": opens(60*s, "/dev/b")})
		p.advance(160 * s)
		// The second check follows the first by half an interval or more, and
		// both intervals coincide.
		for path, want := range map[string][]time.Duration{
			"/dev/a": {7 * s, 30 * s, 60 * s, 90 * s, 120 * s, 150 * s},
			"/dev/b": {7 * s, 60 * s, 120 * s},
		} {
			if got := p.times(path); !slices.Equal(got, want) {
				t.Errorf("%s was opened at %v, want %v", path, got, want)
			}
		}
	})
}

// A failed check is repeated with a growing delay, and the device recovers.
func TestDeviceRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		p.Set(map[string]device.Check{"a": opens(20*s, "/dev/a")})
		p.advance(10 * s)
		p.changed()
		p.fail("/dev/a", unix.ENODEV)
		p.advance(10 * s)
		p.want(map[string]string{"a": "open /dev/a: no such device"})
		if !p.changed() {
			t.Error("the failure was not signalled")
		}
		p.advance(69 * s)
		if p.changed() {
			t.Error("a change was signalled though the reason is the same")
		}
		p.fail("/dev/a", nil)
		p.advance(s + 20*s)
		p.want(map[string]string{"a": ""})
		want := []time.Duration{0, 20 * s, 21 * s, 23 * s, 27 * s, 35 * s, 60 * s, 80 * s, 100 * s}
		if got := p.times("/dev/a"); !slices.Equal(got, want) {
			t.Errorf("opened at %v, want %v", got, want)
		}
	})
}

// A hung check stays one goroutine and does not delay others.
func TestHungCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		release := p.hang("/dev/a")
		p.Set(map[string]device.Check{"a": opens(10*s, "/dev/a"), "b": opens(10*s, "/dev/b")})
		p.advance(timeout - 1)
		p.want(map[string]string{"a": ReasonPending, "b": ""})
		p.advance(1)
		p.want(map[string]string{"a": "open /dev/a: does not answer", "b": ""})
		p.advance(95 * s)
		p.want(map[string]string{"a": "open /dev/a: does not answer", "b": ""})
		if got := p.times("/dev/a"); len(got) != 1 {
			t.Errorf("started again while it hung: %v", got)
		}
		if got := p.times("/dev/b"); len(got) != 11 {
			t.Errorf("the other was opened at %v, want 11 times", got)
		}
		release()
		p.advance(0)
		p.want(map[string]string{"a": "", "b": ""})
		p.advance(10 * s)
		if got := p.times("/dev/a"); len(got) != 2 {
			t.Errorf("opened at %v, want once more", got)
		}
	})
}

// A device is replugged while its check hangs: the new one is checked at once, and the result of the old one
// does not count for it.
func TestReplugDuringHungCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		release := p.hang("/dev/a0")
		p.fail("/dev/a0", unix.EIO)
		p.Set(map[string]device.Check{"a": opens(10*s, "/dev/a0")})
		p.advance(timeout)
		p.want(map[string]string{"a": "open /dev/a0: does not answer"})
		p.Set(nil)
		p.want(map[string]string{})
		p.Set(map[string]device.Check{"a": opens(10*s, "/dev/a1")})
		p.want(map[string]string{"a": ReasonPending})
		p.advance(0)
		p.want(map[string]string{"a": ""})
		release()
		p.advance(60 * s)
		p.want(map[string]string{"a": ""})
		if got := p.times("/dev/a0"); len(got) != 1 {
			t.Errorf("the old one was opened at %v, want once", got)
		}
	})
}

func TestNoCheckOfAbsentDevice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProberTest(t)
		p.Set(map[string]device.Check{"a": opens(5*s, "/dev/a")})
		p.advance(s)
		p.Set(nil)
		p.advance(time.Hour)
		if got := p.times("/dev/a"); len(got) != 1 {
			t.Errorf("opened at %v after the device had gone", got)
		}
	})
}

func TestOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		p := New(func(path string) string { return "/host" + path })
		p.host.open = func(path string) error {
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
		got := p.once(t.Context(), map[string]device.Check{"good": opens(0, "/dev/good"), "bad": opens(0, "/dev/bad"), "hangs": opens(0, "/dev/hangs")}, 2*s)
		want := map[string]string{"good": "", "bad": "open /dev/bad: /host/dev/bad", "hangs": "open /dev/hangs: does not answer"}
		if !maps.Equal(got, want) {
			t.Errorf("once: %q, want %q", got, want)
		}
		if took := time.Since(began); took != 2*s {
			t.Errorf("took %v, want the limit", took)
		}
		if got := New(p.host.local).once(t.Context(), nil, 2*s); len(got) != 0 {
			t.Errorf("nothing to check gives %q", got)
		}
	})
}
