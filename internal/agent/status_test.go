package agent_test

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	const a, b = stickID, otherID
	n := newNode(t, zigbee+"count = 2\n[[resource]]\nname = \"none\"\nmatch.glob = \"/dev/none*\"\n")
	n.addSticks(2)
	n.kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: "p", Container: "c", Resource: "example.com/zigbee"}, a+"::1")
	agent, _ := n.serve()
	n.untilAllocatable("example.com/zigbee", 4)
	n.eventually("the kubelet's answer to it", func() bool { return agent.Ready() == nil })
	if err := agent.Alive(); err != nil {
		t.Errorf("Alive: %v", err)
	}
	var s status.Status
	n.eventually("the kubelet's answer to the page", func() bool { // for which a page waits half a second
		s = agent.Status(t.Context())
		// The first resource may be allocatable before the second one is published.
		return s.HeldUnknown == "" && len(s.Resources) == 2 && s.Resources[1].NoDevices != ""
	})
	if s.Kubelet == nil || !s.Kubelet.Present || s.Config.Generation != 1 || s.Command != "serve" {
		t.Fatalf("status: %+v", s)
	}
	r := s.Resources[0]
	if r.Slots.Healthy != 4 || *r.Slots.Held != 1 || *r.Slots.Free != 3 || !r.Registered || len(r.Devices) != 2 {
		t.Errorf("resource: %+v, held %d, free %d", r, *r.Slots.Held, *r.Slots.Free)
	}
	if none := s.Resources[1].NoDevices; none != `glob "/dev/none*" fits nothing` || r.NoDevices != "" {
		t.Errorf("no devices: %q and %q", none, r.NoDevices)
	}
	d := r.Devices[0]
	if d.ID != a || d.Health != status.Healthy || d.Slots != 2 || !slices.Equal(d.Nodes, []string{"/dev/ttyUSB0"}) ||
		!slices.Equal(d.Held, []status.Holder{{ID: a + "::1", Namespace: "default", Pod: "p", Container: "c"}}) {
		t.Errorf("device: %+v", d)
	}

	n.host.RemoveUSB("1-2")
	n.untilListed("example.com/zigbee", []string{a, a + "::1"}, []string{b, b + "::1"})
	n.configure(zigbee + "cuont = 2\n")
	n.eventually("the problem", func() bool { return len(agent.Status(t.Context()).Config.Problems) > 0 })
	s = agent.Status(t.Context())
	if p := s.Config.Problems; len(p) != 1 || !strings.Contains(p[0], `unknown key "cuont"; hint: did you mean "count"?`) {
		t.Errorf("problems of the configuration: %q", s.Config.Problems)
	}
	if d := s.Resources[0].Devices[1]; d.Health != status.Unhealthy || d.Reason != "device is gone" || d.Help != status.SectionAbsent {
		t.Errorf("device: %+v", d)
	}
	if host, _ := os.Hostname(); s.Host != host || s.Host == "" {
		t.Errorf("host %q, want %q", s.Host, host)
	}
	var what []string
	for _, e := range s.Events {
		if e.Time.IsZero() {
			t.Errorf("event without a time: %+v", e)
		}
		what = append(what, strings.TrimSpace(e.Resource+" "+e.ID+" "+e.What))
	}
	for _, want := range []string{
		"example.com/zigbee " + a + " Healthy", "example.com/zigbee  registered (start)",
		"example.com/zigbee " + b + " Unhealthy: device is gone", "the configuration on disk is broken",
	} {
		if !slices.Contains(what, want) {
			t.Errorf("events lack %q: %q", want, what)
		}
	}
}

// A hung kubelet delays the status briefly, a missing one does not, and neither is an
// error. A node without devices is ready.
func TestStatusWithoutPodResources(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"[[resource]]\nname = \"always\"\nregister = \"always\"\nmatch.glob = \"/dev/none\"\n")
	n.options.Paths.PodResources += ".other"
	agent, _ := n.serve()
	<-agent.Settled()
	if s := agent.Status(t.Context()); !strings.Contains(s.HeldUnknown, "is unavailable") || s.Resources[0].Slots.Held != nil {
		t.Errorf("without a socket: %q, %+v", s.HeldUnknown, s.Resources)
	}
	n.eventually("readiness", func() bool { return agent.Ready() == nil })
	// Both would be registered in one pass.
	if got := n.kubelet.Resources(); !slices.Equal(got, []string{"example.com/always"}) {
		t.Errorf("registered %v, want only the resource that always is", got)
	}

	m := newNode(t, zigbee)
	m.options.Paths.PodResources += ".hangs"
	l, err := net.Listen("unix", m.options.Paths.PodResources)
	must(t, err)
	defer os.Remove(m.options.Paths.PodResources)
	defer l.Close()
	hung, _ := m.serve()
	<-hung.Settled()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	if s := hung.Status(ctx); s.HeldUnknown != "the kubelet did not answer in time" {
		t.Errorf("a kubelet that hangs: %q", s.HeldUnknown)
	}
	if took := time.Since(began); took > limit/2 {
		t.Errorf("a kubelet that hangs cost %v", took)
	}
}
