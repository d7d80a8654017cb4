package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// lists records each list sent to the kubelet, and the target of stick A's link at that
// time.
type lists struct {
	mu   sync.Mutex
	went []string
	way  func() string
}

// take records stick A's health and the target of its link.
func (l *lists) take(list *api.ListAndWatchResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range list.Devices {
		if d.ID == stickA && l.way != nil {
			l.went = append(l.went, d.Health+" "+l.way())
		}
	}
}

// through sets the link.
func (l *lists) through(way func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.way = way
}

// check checks that the link was right whenever the stick was listed: absent while
// Unhealthy, present while Healthy.
func (l *lists) check(t *testing.T, nodes ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	health := map[string]bool{}
	for _, went := range l.went {
		state, node, _ := strings.Cut(went, " ")
		health[state] = true
		if state == api.Unhealthy && node != "" {
			t.Errorf("while the stick was listed as Unhealthy %s was injected", node)
		}
		ok := false
		for _, n := range nodes {
			ok = ok || n == node
		}
		if state == api.Healthy && !ok {
			t.Errorf("when the stick was listed as Healthy %q was injected, want one of %v", node, nodes)
		}
	}
	if !health[api.Healthy] || !health[api.Unhealthy] {
		t.Errorf("lists that went to the kubelet: %v", l.went)
	}
}

// The stick is unplugged, another one takes the name of its node, and it returns under
// another name. The kubelet has called Allocate once and does not call it again.
func TestReplugKeepsIDAndLink(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		way    func(*testing.T, *product.Plugin) string
	}{
		"link": {"", func(_ *testing.T, p *product.Plugin) string { return linkOf(p, stickA) }},
		"CDI": {"container.cdi = true\n", func(t *testing.T, p *product.Plugin) string {
			node, _, _ := strings.Cut(specOf(t, p)[stick+"="+stickA], " ")
			return node
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Plug(aStick("1-1", "AAAA1111", "ttyUSB0"))
			var l lists
			newRelay(t, relay{listed: l.take})
			p := n.serve(sticks + c.config)
			n.WaitCount(t, stick, count(1, 1))
			l.through(func() string { return c.way(t, p) })
			pod := n.admit(devicemanager.Pod("kept", stick, 1))
			injected := n.injected(pod)
			if got := c.way(t, p); got != "/dev/ttyUSB0" {
				t.Fatalf("injected: %q, want /dev/ttyUSB0", got)
			}
			n.Unplug("1-1")
			n.WaitCount(t, stick, count(1, 0))
			if got := n.Health(pod, "main")[stickA]; got != unhealthy {
				t.Errorf("status shows the stick %s", got)
			}
			n.Plug(aStick("1-2", "BBBB2222", "ttyUSB0"))
			n.WaitCount(t, stick, count(2, 1))
			if got := c.way(t, p); got != "" {
				t.Errorf("the other stick is injected in place of the first: %q", got)
			}
			began := time.Now()
			n.Plug(aStick("1-3", "AAAA1111", "ttyUSB1"))
			t.Logf("plugged in to allocatable: %v", n.tookCount(began, stick, count(2, 2)).Round(time.Millisecond))
			if got := c.way(t, p); got != "/dev/ttyUSB1" {
				t.Errorf("injected: %q, want /dev/ttyUSB1", got)
			}
			l.check(t, "/dev/ttyUSB0", "/dev/ttyUSB1")
			n.holds(pod, stick, stickA)
			if got := n.Health(pod, "main")[stickA]; got != healthy {
				t.Errorf("status shows the stick %s", got)
			}
			if got := n.injected(pod); got != injected {
				t.Errorf("a restarted container gets %s, want %s", got, injected)
			}
			n.holds(n.admit(devicemanager.Pod("other", stick, 1)), stick, stickB)
		})
	}
}

// loopControl adds and removes loop devices of the machine. Their numbers are random,
// since others may use some.
type loopControl struct {
	t     *testing.T
	fd    int
	first int
}

func newLoopControl(t *testing.T) *loopControl {
	t.Helper()
	fd, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &loopControl{t: t, fd: fd, first: 1000 + 10*rand.N(50_000)}
	t.Cleanup(func() {
		for i := range 10 {
			// Absent ones return ENODEV.
			_ = unix.IoctlSetInt(fd, unix.LOOP_CTL_REMOVE, l.first+i)
		}
		unix.Close(fd)
	})
	return l
}

func (l *loopControl) id(i int) string { return fmt.Sprint("loop", l.first+i) }

func (l *loopControl) add(i int) {
	l.t.Helper()
	if err := unix.IoctlSetInt(l.fd, unix.LOOP_CTL_ADD, l.first+i); err != nil {
		l.t.Fatalf("add %s: %v", l.id(i), err)
	}
}

// remove removes a device, which others on the machine may have open briefly.
func (l *loopControl) remove(i int) {
	l.t.Helper()
	eventually(l.t, "remove "+l.id(i), func() error {
		return unix.IoctlSetInt(l.fd, unix.LOOP_CTL_REMOVE, l.first+i)
	})
}

// Real uevents and the nodes of devtmpfs.
func TestKernelEventsReachTheKubelet(t *testing.T) {
	const loop = "example.com/loop"
	n := newNode(t, devicemanager.Options{})
	l := newLoopControl(t)
	l.add(0)
	n.Plugin(t, product.Spec{Args: []string{"--allow=dangerous"}, Config: domain + fmt.Sprintf(`
[[resource]]
name = "loop"
match = { glob = "/dev/loop%d[0-9]", dangerous = true }
`, l.first/10)})
	n.WaitCount(t, loop, count(1, 1))
	var came, went []time.Duration
	still := func() {
		// Changes in quick succession are processed together.
		want := n.Count(loop)
		wait.Holds(t, 100*time.Millisecond, "count", wait.Equal(want, func() devicemanager.Count { return n.Count(loop) }))
	}
	for i := 1; i < 6; i++ {
		still()
		began := time.Now()
		l.add(i)
		came = append(came, n.tookCount(began, loop, count(int64(i+1), int64(i+1))))
	}
	pod := n.admit(devicemanager.Pod("all", loop, 6))
	for i := 1; i < 6; i++ {
		still()
		began := time.Now()
		l.remove(i)
		went = append(went, n.tookCount(began, loop, count(6, int64(6-i))))
		if got := n.Health(pod, "main")[l.id(i)]; got != unhealthy {
			t.Errorf("status shows %s %s", l.id(i), got)
		}
	}
	t.Logf("a device is added, to allocatable: %s", figures(came))
	t.Logf("a device is removed, which takes the kernel some time, to not allocatable: %s", figures(went))
	l.add(5)
	n.WaitCount(t, loop, count(6, 2))
}
