package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// holding is a node whose kubelet has a checkpoint, and whose pods have cgroups.
type holding struct {
	*node
	cgroups *kubelettest.Cgroups
}

func newHolding(t *testing.T, text string) *holding {
	t.Helper()
	n := newNode(t, text)
	n.kubelet.Stop()
	h := &holding{node: n, cgroups: kubelettest.NewCgroups(t)}
	n.options.Paths.Cgroup = h.cgroups.Dir()
	n.kubelet = kubelettest.New(kubelettest.Options{
		Dir:          n.options.Paths.KubeletDir,
		PodResources: n.options.Paths.PodResources,
	})
	if err := n.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kubelet.Stop)
	return h
}

const partResource = "example.com/part"

func partOf(pod string) kubelettest.Request {
	return kubelettest.Request{Namespace: "default", Pod: pod, Container: "main", Resource: partResource}
}

// start admits a pod with one device and starts its containers.
func (h *holding) start(pod string) (uid string, ids []string) {
	h.Helper()
	a, err := h.kubelet.Admit(h.Context(), partOf(pod), 1)
	if err != nil {
		h.Fatal(err)
	}
	uid = h.kubelet.UID("default", pod)
	h.cgroups.Start(uid)
	return uid, a.IDs
}

// forget deletes a pod with --force: its containers still run.
func (h *holding) forget(pod string) { h.kubelet.Remove("default", pod) }

// refused admits a pod, which must fail because of the pod with that UID.
func (h *holding) refused(pod, uid string) {
	h.Helper()
	a, err := h.kubelet.Admit(h.Context(), partOf(pod), 1)
	if err == nil {
		h.Fatalf("pod %s got %q while the pod with UID %s runs", pod, a.IDs, uid)
	}
	for _, part := range []string{uid, partResource, "part-0"} {
		if !strings.Contains(err.Error(), part) {
			h.Errorf("the error does not name %s: %v", part, err)
		}
	}
}

// A device is not allocated again while the containers of a pod run that was deleted with
// --force. It is unhealthy meanwhile, so that no further pod is sent to the node.
func TestForceDeletedPodKeepsItsDevice(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	h.addNodes("part-0")
	h.serve()
	h.untilListed(partResource, []string{"part-0"}, nil)
	first, _ := h.start("first")
	h.forget("first")
	began := time.Now()
	h.refused("second", first)
	if took := time.Since(began); took > limit/4 {
		t.Errorf("the refusal took %s", took)
	}
	h.untilListed(partResource, nil, []string{"part-0"})
	h.cgroups.End(first)
	h.untilListed(partResource, []string{"part-0"}, nil)
	second, _ := h.start("second")
	if second == first {
		t.Errorf("both pods have UID %s", first)
	}
}

// A restart of the program loses nothing: neither a pod that the checkpoint has, nor one
// that only the program remembers.
func TestForgottenPodOutlivesTheProgram(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	h.addNodes("part-0")
	_, stop := h.serve()
	h.untilListed(partResource, []string{"part-0"}, nil)
	first, _ := h.start("first")
	h.forget("first")
	h.refused("second", first)
	h.untilListed(partResource, nil, []string{"part-0"}) // this rewrites the checkpoint
	stop()
	h.serve()
	h.until("registration of the next instance", func() bool {
		return h.kubelet.Registrations(partResource) == 2 && len(h.kubelet.Connected(partResource)) == 1
	})
	_, err := h.kubelet.Allocate(h.Context(), partResource, "part-0")
	if err == nil || !strings.Contains(err.Error(), first) {
		t.Errorf("Allocate after a restart: %v, want an error that names %s", err, first)
	}
	h.cgroups.End(first)
	h.untilListed(partResource, []string{"part-0"}, nil)
}

// The checkpoint keeps a pod that the kubelet has forgotten until the kubelet allocates the next
// device: a list of a plugin writes it unchanged. Its device is held nevertheless.
func TestForgottenPodInTheCheckpointKeepsItsDevice(t *testing.T) {
	t.Parallel()
	h := newHolding(t, parts("part"))
	h.addNodes("part-0")
	var c clock
	c.forward(time.Hour)
	a, _ := h.serveBy(&c)
	h.untilListed(partResource, []string{"part-0"}, nil)
	first, _ := h.start("first")
	h.forget("first")
	h.configure(strings.Replace(parts("part"), `"part"`, `"renamed"`, 1))
	h.untilListed(partResource, nil, []string{"part-0"})
	h.passMinutes(a, &c, func() {
		if list, received := h.kubelet.Latest("example.com/renamed"); received > 0 && len(list.Healthy()) > 0 {
			t.Fatalf("the other resource offers %q while the pod with UID %s runs", list.Healthy(), first)
		}
	})
}

// passMinutes moves the clock three times by two minutes, and calls check after a pass.
func (h *holding) passMinutes(a *agent.Agent, c *clock, check func()) {
	h.Helper()
	for range 3 {
		c.forward(2 * time.Minute)
		h.passes(a)
		check()
	}
}
