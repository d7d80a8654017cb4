package plugin

import (
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
