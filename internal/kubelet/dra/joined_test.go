package dra_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// reserve makes claim a with usb-1, reserved for pods with these UIDs and owned by the pod with
// the UID owner, if it is not empty.
func (b *bed) reserve(owner string, pods ...string) {
	b.Helper()
	c := claim("a")
	reserved := []any{}
	for _, uid := range pods {
		reserved = append(reserved, kubeapitest.Object{"resource": "pods", "name": uid, "uid": uid})
	}
	meta := kubeapitest.Object{"uid": c.UID}
	if owner != "" {
		meta["ownerReferences"] = []any{kubeapitest.Object{
			"apiVersion": "v1",
			"kind":       "Pod",
			"name":       owner,
			"uid":        owner,
			"controller": true,
		}}
	}
	results := []any{kubeapitest.Object{"request": "one", "driver": dra.Driver, "pool": "n1/generic-dp", "device": "usb-1"}}
	b.api.Put(claimPath(c), kubeapitest.Object{
		"metadata": meta,
		"status": kubeapitest.Object{
			"allocation":  kubeapitest.Object{"devices": kubeapitest.Object{"results": results}},
			"reservedFor": reserved,
		},
	})
}

// pods returns the pods in the file of claim a.
func (b *bed) pods() []string {
	b.Helper()
	c, err := b.claims.ReadClaim(claim("a").UID)
	must(b, err)
	return c.Pods
}

func (b *bed) untilPods(want ...string) {
	b.Helper()
	b.until("pods of the claim", func() bool { return slices.Equal(b.pods(), want) })
}

// A pod that joins while the API server does not answer is found later, and a pod that has left
// and ended is forgotten.
func TestPodsOfAClaimThatComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s, stop := b.serveRegistered()
	b.host.set("first", holds.PodRunning)
	b.reserve("", "first")
	b.prepare(claim("a"))
	b.host.set("second", holds.PodRunning)
	b.reserve("", "second")
	b.atNextGet(claim("a"), http.StatusServiceUnavailable, func() {})
	s.NewPods()
	b.untilPods("first", "second")
	b.host.set("first", holds.PodEnded)
	s.NewPods()
	b.untilPods("second")

	// The next instance reads the reservations at its start.
	stop()
	b.untilDrivers(0)
	b.reserve("", "second", "third")
	s, _ = b.serve()
	s.NewPods()
	b.untilPods("second", "third")
}

// A claim that was made for its pod is not read again.
func TestClaimOfOnePod(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s, _ := b.serveRegistered()
	b.reserve("only", "only")
	b.prepare(claim("a"))
	shared := claim("x")
	b.api.set(shared, results(result("one", "usb-2")))
	b.prepare(shared)
	gets := func(c kubelettest.ResourceClaim) int {
		n := 0
		for _, r := range b.api.Requests() {
			if r.Path == claimPath(c) {
				n++
			}
		}
		return n
	}
	before := gets(claim("a"))
	for i := range 2 {
		read := gets(shared)
		s.NewPods()
		b.until("a reading of the shared claim", func() bool { return gets(shared) > read })
		if n := gets(claim("a")) - before; n > 0 {
			t.Errorf("after %d times the claim was read %d times", i+1, n)
		}
	}
}

// A claim that was deallocated may have another device for its next pod. Containers of its former
// pod may still have the first device.
func TestClaimWithAnotherDevice(t *testing.T) {
	t.Parallel()
	b := newForced(t, 0)
	b.unprepare(claim("a"))
	later := claim("a")
	later.Pod = "later"
	b.host.set(podUID(later), holds.PodEnded)
	b.api.set(later, results(result("one", "usb-2")))
	b.refuses(later, "processes of its pod uid-of-pod-a still run")
	b.refused("processes of its pod uid-of-pod-a still run")
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.prepare(later)
	b.prepare(claim("b"))
}

// A claim that is prepared again has a pod that is about to start, even if an earlier pod ran.
func TestPodThatStartsAfterAnother(t *testing.T) {
	t.Parallel()
	b := newForced(t, time.Hour)
	b.refused("still run") // this sees the first pod
	later := claim("a")
	later.Pod = "later"
	b.api.set(later, results(result("one", "usb-1")))
	b.prepare(later)
	b.api.remove(later)
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.host.set(podUID(later), holds.PodEnded)
	b.refused("its pod may start within")
}
