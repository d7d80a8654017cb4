package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/sample"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// The kubelet may start at any time after the program.
func TestKubeletStartsAfterTheProgram(t *testing.T) {
	for name, before := range map[string]func(*testing.T){
		"no directory": func(t *testing.T) {
			must(t, os.RemoveAll("/var/lib/kubelet/device-plugins"))
		},
		"no socket": func(t *testing.T) {
			must(t, os.Remove(kubeletSocket))
		},
		"dead socket": func(*testing.T) {},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Mknod("port0")
			n.Stop(t)
			before(t)
			p := n.serve(ports)
			p.WaitLog(t, limit, "device is offered")
			p.WaitLog(t, limit, "waiting for")
			began := time.Now()
			n.Restart(t)
			t.Logf("start of the kubelet to allocatable: %v", n.timeToCount(began, port, count(1, 1)).Round(10*time.Microsecond))
		})
	}
}

// bind makes the kubelet's socket, and only listen accepts connections: a connection
// refused in between must be retried at once.
func TestConnectionRefusedByANewSocketIsRetried(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	p := n.serve(ports)
	var back []time.Duration
	for range 5 {
		n.WaitCount(t, port, count(1, 1))
		n.Stop(t)
		must(t, os.Remove(kubeletSocket))
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: kubeletSocket}))
		wait.Holds(t, 30*time.Millisecond, "program", func() error {
			if !p.Running() {
				return errors.New("has ended")
			}
			return nil
		})
		unix.Close(fd)
		began := time.Now()
		n.Restart(t)
		back = append(back, n.timeToCount(began, port, count(1, 1)))
	}
	t.Logf("start of the kubelet to allocatable: %s", figures(back))
}

// A kubelet that dials a removed socket blocks the registration for ten seconds. And
// when that call ends, late, the kubelet drops whichever plugin has the resource by
// then.
func TestSocketRemovedBeforeTheKubeletDialsIsReplaced(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	var calls atomic.Int32
	proxyRegistrations(t, func(ctx context.Context, kubelet api.RegistrationClient, r *api.RegisterRequest) (*api.Empty, error) {
		if calls.Add(1) == 1 {
			if err := os.Remove(filepath.Join(devicemanager.Dir, r.Endpoint)); err != nil {
				t.Error(err)
			}
		}
		return kubelet.Register(ctx, r)
	})
	began := time.Now()
	p := n.serve(ports)
	d := n.timeToCount(began, port, count(1, 1))
	t.Logf("start of the program to allocatable: %v", d.Round(10*time.Microsecond))
	if d > 5*time.Second {
		t.Errorf("allocatable after %v: the program has waited for the kubelet to give up", d)
	}
	n.admit(devicemanager.Pod("one", port, 1))
	p.Stop(t)
	n.WaitCount(t, port, count(1, 0)) // the kubelet still follows this stream
}

// e2e_node/device_plugin_failures_test.go: GetDevicePluginOptions fails, and therefore
// the registration
func TestRefusedRegistrationIsRetriedWithBackoffAndANewSocket(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	var mu sync.Mutex
	var endpoints []string
	proxyRegistrations(t, func(_ context.Context, _ api.RegistrationClient, r *api.RegisterRequest) (*api.Empty, error) {
		mu.Lock()
		defer mu.Unlock()
		endpoints = append(endpoints, r.Endpoint)
		return nil, errors.New("failed to get device plugin options: not today")
	})
	p := n.serve(ports)
	calls := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(endpoints)
	}
	eventually(t, "five attempts", func() error {
		if calls() < 5 {
			return fmt.Errorf("%d", calls())
		}
		return nil
	})
	wait.Holds(t, time.Second, "attempts", func() error {
		if got := calls(); got > 15 {
			return fmt.Errorf("%d: a loop without a pause", got)
		}
		return nil
	})
	mu.Lock()
	if distinct := slices.Compact(slices.Sorted(slices.Values(endpoints))); len(distinct) != len(endpoints) {
		t.Errorf("a socket was used twice: %v", endpoints)
	}
	mu.Unlock()
	if logged := strings.Count(p.Log(), "not today"); logged != 1 {
		t.Errorf("the log has the reason %d times, want once", logged)
	}
	if got := n.Count(port); got != devicemanager.Absent {
		t.Errorf("count meanwhile: %v, want no resource", got)
	}
	n.Restart(t)
	n.WaitCount(t, port, count(1, 1))
}

// A kubelet that dies between accepting the registration and requesting a list.
func TestKubeletDiesAfterRegistration(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0")
	accepted := make(chan struct{}, 100)
	proxyRegistrations(t, func(context.Context, api.RegistrationClient, *api.RegisterRequest) (*api.Empty, error) {
		accepted <- struct{}{}
		return &api.Empty{}, nil
	})
	n.serve(ports)
	wait.Closed(t, limit, "registration", accepted)
	began := time.Now()
	n.Restart(t)
	t.Logf("start of the kubelet to allocatable: %v", n.timeToCount(began, port, count(1, 1)).Round(10*time.Microsecond))
}

// A kubelet that dies at any time during a registration.
func TestKubeletDiesDuringRegistration(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	n.serve(ports)
	for i := range 20 {
		n.Restart(t)
		timeTo(t, time.Now(), "socket of the program", func() error {
			if len(sockets(t)) == 0 {
				return errors.New("none")
			}
			return nil
		})
		if i%2 == 0 { // some microseconds later
			for range i * 100 {
				_ = n.Count(port)
			}
		}
		n.Stop(t)
	}
	n.Restart(t)
	n.WaitCount(t, port, count(2, 2))
	n.admit(devicemanager.Pod("two", port, 2))
}

// e2e_node/device_plugin_failures_test.go: ListAndWatch fails, at once or later, and
// the kubelet never calls it again. Kubelets up to 1.36 end the newest stream of a
// resource when an older one ends.
func TestReregistrationWhenTheKubeletEndsTheStream(t *testing.T) {
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "port1")
	var p *product.Plugin
	var s *recording
	t.Run("other plugin", func(t *testing.T) {
		other := &sample.Plugin{Resource: port, ID: "other"}
		other.Start(t, devicemanager.Dir)
		n.WaitCount(t, port, count(1, 1))
		p = n.serve(ports)
		n.WaitCount(t, port, count(2, 2))
		s = n.record(port)
	})
	p.WaitLog(t, limit, "stream_ended")
	n.WaitCount(t, port, count(2, 2))
	s.logUnavailable(t)
	n.admit(devicemanager.Pod("two", port, 2))
}

// A socket is removed while the kubelet is connected to it.
func TestRemovedSocketIsReplaced(t *testing.T) {
	const valve = "example.com/valve"
	n := newNode(t, devicemanager.Options{})
	n.Mknod("port0", "valve0")
	n.serve(ports + "[[resource]]\nname = \"valve\"\nmatch.glob = \"/dev/valve*\"\n")
	for range 5 {
		n.WaitCount(t, port, count(1, 1))
		n.WaitCount(t, valve, count(1, 1))
		before := sockets(t)
		if len(before) != 2 {
			t.Fatalf("sockets of two resources: %v, want two", before)
		}
		must(t, os.Remove(before[0]))
		eventually(t, "new socket", func() error {
			now := sockets(t)
			if len(now) != 2 || slices.Contains(now, before[0]) || !slices.Contains(now, before[1]) {
				return errors.New(strings.Join(now, " "))
			}
			return nil
		})
	}
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, valve, count(1, 1))
	n.Restart(t)
	n.WaitCount(t, port, count(1, 1))
	n.WaitCount(t, valve, count(1, 1))
}
