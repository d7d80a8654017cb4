package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// sentList is stick A in a list for the kubelet: its health, and the node that a
// container would get at that time.
type sentList struct{ health, node string }

// listLog records each list for the kubelet.
type listLog struct {
	mu       sync.Mutex
	sent     []sentList
	injected func() string // the node of stick A
}

func (l *listLog) record(list *api.ListAndWatchResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range list.Devices {
		if d.ID == stickA && l.injected != nil {
			l.sent = append(l.sent, sentList{d.Health, l.injected()})
		}
	}
}

// start starts to record.
func (l *listLog) start(injected func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.injected = injected
}

// check checks that a container would have got one of nodes whenever stick A was listed
// as Healthy, and none whenever it was Unhealthy.
func (l *listLog) check(t *testing.T, nodes ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := map[string]bool{}
	for _, s := range l.sent {
		listed[s.health] = true
		if s.health == api.Unhealthy && s.node != "" {
			t.Errorf("listed as Unhealthy, the stick is injected as %s, want none", s.node)
		}
		if s.health == api.Healthy && !slices.Contains(nodes, s.node) {
			t.Errorf("listed as Healthy, the stick is injected as %q, want one of %v", s.node, nodes)
		}
	}
	if !listed[api.Healthy] || !listed[api.Unhealthy] {
		t.Errorf("lists for the kubelet: %v, want Healthy and Unhealthy ones", l.sent)
	}
}

// The stick is unplugged, another one takes the name of its node, and it returns under
// another name. The kubelet has called Allocate once and does not call it again.
func TestReplugKeepsIDAndLink(t *testing.T) {
	for name, c := range map[string]struct {
		config   string
		injected func(*testing.T, *product.Plugin) string // the node of stick A
	}{
		"link": {"", func(_ *testing.T, p *product.Plugin) string { return linkOf(p, stickA) }},
		"CDI": {"container.cdi = true\n", func(t *testing.T, p *product.Plugin) string {
			node, _, _ := strings.Cut(specOf(t, p)[stick+"="+stickA], " ")
			return node
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, devicemanager.Options{})
			n.Plug(usbStick("1-1", "AAAA1111", "ttyUSB0"))
			var l listLog
			proxyPlugins(t, pluginProxy{onList: l.record})
			p := n.serve(sticks + c.config)
			n.WaitCount(t, stick, count(1, 1))
			l.start(func() string { return c.injected(t, p) })
			pod := n.admit(devicemanager.Pod("kept", stick, 1))
			injected := n.injected(pod)
			if got := c.injected(t, p); got != "/dev/ttyUSB0" {
				t.Fatalf("injected: %q, want /dev/ttyUSB0", got)
			}
			n.Unplug("1-1")
			n.WaitCount(t, stick, count(1, 0))
			if got := n.Health(pod, "main")[stickA]; got != unhealthy {
				t.Errorf("status shows the stick %s, want it Unhealthy", got)
			}
			n.Plug(usbStick("1-2", "BBBB2222", "ttyUSB0"))
			n.WaitCount(t, stick, count(2, 1))
			if got := c.injected(t, p); got != "" {
				t.Errorf("the other stick is injected in place of the first: %q, want none", got)
			}
			began := time.Now()
			n.Plug(usbStick("1-3", "AAAA1111", "ttyUSB1"))
			t.Logf("plugged in to allocatable: %v", n.timeToCount(began, stick, count(2, 2)).Round(time.Millisecond))
			if got := c.injected(t, p); got != "/dev/ttyUSB1" {
				t.Errorf("injected: %q, want /dev/ttyUSB1", got)
			}
			l.check(t, "/dev/ttyUSB0", "/dev/ttyUSB1")
			n.wantHeld(pod, stick, stickA)
			if got := n.Health(pod, "main")[stickA]; got != healthy {
				t.Errorf("status shows the stick %s, want it Healthy", got)
			}
			if got := n.injected(pod); got != injected {
				t.Errorf("a restarted container gets %s, want %s", got, injected)
			}
			n.wantHeld(n.admit(devicemanager.Pod("other", stick, 1)), stick, stickB)
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
	var added, removed []time.Duration
	// Changes in quick succession are processed together.
	settle := func() {
		want := n.Count(loop)
		wait.Holds(t, 100*time.Millisecond, "count", wait.Equal(want, func() devicemanager.Count { return n.Count(loop) }))
	}
	for i := 1; i < 6; i++ {
		settle()
		began := time.Now()
		l.add(i)
		added = append(added, n.timeToCount(began, loop, count(int64(i+1), int64(i+1))))
	}
	pod := n.admit(devicemanager.Pod("all", loop, 6))
	for i := 1; i < 6; i++ {
		settle()
		began := time.Now()
		l.remove(i)
		removed = append(removed, n.timeToCount(began, loop, count(6, int64(6-i))))
		if got := n.Health(pod, "main")[l.id(i)]; got != unhealthy {
			t.Errorf("status shows %s %s, want it Unhealthy", l.id(i), got)
		}
	}
	t.Logf("a device is added, to allocatable: %s", figures(added))
	t.Logf("a device is removed, which takes the kernel some time, to not allocatable: %s", figures(removed))
	l.add(5)
	n.WaitCount(t, loop, count(6, 2))
}
