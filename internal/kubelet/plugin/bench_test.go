package plugin

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// percentiles reports the median and the 99th percentile of took.
func percentiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	at := func(p int) float64 { return float64(took[(len(took)-1)*p/100]) / float64(time.Millisecond) }
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
}

// listenLate binds a socket, calls between, and listens.
func listenLate(between func(path string)) func(string) (net.Listener, error) {
	return func(path string) (net.Listener, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			return nil, err
		}
		between(path)
		if err := unix.Listen(fd, 128); err != nil {
			return nil, err
		}
		return net.FileListener(f)
	}
}

// From the moment when kubelet.sock appears, bound but not listening, to the
// first list at the kubelet: it decides whether a static pod starts after a boot.
func BenchmarkKubeletRestart(b *testing.B) {
	var appeared time.Time
	n := newNode(b, func(o *kubelettest.Options) {
		o.Listen = listenLate(func(string) { appeared = time.Now() })
	}).up()
	n.plugin(gpu, newSource(healthy("a")...))
	n.waitAllocatable(gpu, 1)
	var took []time.Duration
	for b.Loop() {
		n.must(n.Restart())
		n.waitAllocatable(gpu, 1)
		list, _ := n.Latest(gpu)
		took = append(took, list.At.Sub(appeared))
	}
	percentiles(b, took)
}

// From the end of a stream to the first list on the next.
func BenchmarkStreamEnded(b *testing.B) {
	n := newNode(b).up()
	n.plugin(gpu, newSource(healthy("a")...))
	n.waitAllocatable(gpu, 1)
	var took []time.Duration
	for b.Loop() {
		_, before := n.Latest(gpu)
		began := time.Now()
		n.CutStream(gpu)
		n.must(n.WaitFor(n.ctx, func() bool { _, now := n.Latest(gpu); return now > before }))
		list, _ := n.Latest(gpu)
		took = append(took, list.At.Sub(began))
		// A live registration precedes a restart in practice.
		b.StopTimer()
		n.must(n.Restart())
		n.waitAllocatable(gpu, 1)
		b.StartTimer()
	}
	percentiles(b, took)
}

// One Allocate call over the socket.
func BenchmarkAllocate(b *testing.B) {
	for _, devices := range []int{1, 1000} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) {
			n := newNode(b).up()
			var ids []string
			for i := range devices {
				ids = append(ids, fmt.Sprintf("0000:%02x:00.0", i))
			}
			n.plugin(gpu, newSource(healthy(ids...)...))
			n.waitAllocatable(gpu, devices)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				_, err := n.Allocate(n.ctx, gpu, ids[devices/2])
				took = append(took, time.Since(began))
				n.must(err)
			}
			percentiles(b, took)
		})
	}
}

// From the start of two resources to their first lists, with a running kubelet.
func BenchmarkStart(b *testing.B) {
	n := newNode(b)
	n.must(n.Start())
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		n.watch = NewKubeletWatch(n.dir, discard)
		stopWatch := n.background(n.watch.Run)
		_, stop1 := n.plugin(gpu, newSource(healthy("a")...))
		_, stop2 := n.plugin("example.com/fuse", newSource(healthy("b")...))
		n.waitAllocatable(gpu, 1)
		n.waitAllocatable("example.com/fuse", 1)
		took = append(took, time.Since(began))
		b.StopTimer()
		stop1()
		stop2()
		stopWatch()
		n.waitAllocatable(gpu, 0)
		n.waitAllocatable("example.com/fuse", 0)
		b.StartTimer()
	}
	percentiles(b, took)
}

// From a changed list at the source to the kubelet.
func BenchmarkChange(b *testing.B) {
	for _, devices := range []int{1, 1000} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) {
			n := newNode(b).up()
			source := newSource()
			n.plugin(gpu, source, func(p *Plugin) { p.timing.window = 0 })
			n.must(n.WaitFor(n.ctx, func() bool { return n.Count(gpu).Known }))
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				list := healthy(fmt.Sprintf("d%d", i))
				for j := range devices - 1 {
					list = append(list, healthy(fmt.Sprintf("0000:%02x:00.0", j))...)
				}
				_, before := n.Latest(gpu)
				began := time.Now()
				source.set(list...)
				n.must(n.WaitFor(n.ctx, func() bool { _, now := n.Latest(gpu); return now > before }))
				took = append(took, time.Since(began))
			}
			percentiles(b, took)
		})
	}
}
