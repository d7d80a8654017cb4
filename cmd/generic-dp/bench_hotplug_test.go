package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Loop devices can be added and removed on any machine, with real uevents. The numbers are
// unlikely to be in use.
const (
	firstLoop = 2370
	manyLoops = 10
	loopList  = "example.com/loop"
)

const loops = `
[[resource]]
name = "loop"
match = { glob = "/dev/loop237[0-9]", dangerous = true }
`

// newLoopProcess returns a process that serves the loop devices, and their control device.
func newLoopProcess(b *testing.B) (*process, loopControl) {
	b.Helper()
	file, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		b.Skipf("loop devices can't be made here: %v", err)
	}
	b.Cleanup(func() { _ = file.Close() })
	control := loopControl{file}
	b.Cleanup(func() {
		for n := firstLoop; n < firstLoop+manyLoops; n++ {
			_ = control.call(unix.LOOP_CTL_REMOVE, n) // fails for absent ones
		}
	})
	p := newProcess(b)
	must(b, os.WriteFile(p.config, []byte(twoResources+loops), 0o600))
	return p, control
}

type loopControl struct{ file *os.File }

// call adds or removes a device. Others may briefly open a new one to probe it.
func (c loopControl) call(request uint, n int) error {
	for {
		err := unix.IoctlSetInt(int(c.file.Fd()), request, n)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// The time from an event of /dev until the kubelet has the list, for single additions and
// removals: in a storm, lists are 50 ms apart on purpose, since the kubelet writes its
// checkpoint for each. The latency of a plugin that polls every 5 s is computed, not
// measured: from each event of this run to the next multiple of 5 s since its start.
func BenchmarkProcessHotplug(b *testing.B) {
	const poll = 5 * time.Second
	p, control := newLoopProcess(b)
	events := make(chan time.Time, 1)
	nodeEvents(b, fmt.Sprintf("loop%d\x00", firstLoop), func(at time.Time) { events <- at })
	p.start()
	defer p.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var came, went, polled []time.Duration
	// Far enough apart that no event waits for the scans of earlier ones.
	apart := time.NewTicker(120 * time.Millisecond)
	defer apart.Stop()
	start, spent := time.Now(), p.cpu()
	for b.Loop() {
		for _, step := range []struct {
			request uint
			healthy int
			took    *[]time.Duration
		}{{unix.LOOP_CTL_ADD, 1, &came}, {unix.LOOP_CTL_REMOVE, 0, &went}} {
			<-apart.C
			done := make(chan error, 1) // the call goes on for up to 40 ms after the event
			go func() { done <- control.call(step.request, firstLoop) }()
			at := <-events
			var seen time.Time
			if err := p.kubelet.WaitFor(ctx, func() bool {
				list, n := p.kubelet.Latest(loopList)
				seen = list.At
				return n > 0 && len(list.Healthy()) == step.healthy
			}); err != nil {
				b.Fatal(err)
			}
			must(b, <-done)
			*step.took = append(*step.took, seen.Sub(at))
			polled = append(polled, poll-at.Sub(start)%poll)
		}
	}
	b.ReportMetric(milliseconds(p.cpu()-spent)/float64(len(polled)), "cpu-ms/event")
	quantiles(b, came, "plug")
	quantiles(b, went, "unplug")
	quantiles(b, polled, "if-polled-5s")
}

// nodeEvents calls tell when a node is added or removed whose name contains name; names
// end with a NUL.
func nodeEvents(b *testing.B, name string, tell func(time.Time)) {
	b.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(b, err)
	if _, err := unix.InotifyAddWatch(fd, "/dev", unix.IN_CREATE|unix.IN_DELETE); err != nil {
		b.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "inotify")
	b.Cleanup(func() { _ = file.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := file.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte(name)) {
				tell(time.Now())
			}
		}
	}()
}
