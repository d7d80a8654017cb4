package conformance_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/test/e2e/devicemanager"
	"github.com/generic-dp/generic-dp/test/e2e/product"
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
