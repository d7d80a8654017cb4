package dra_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// atNextGet calls do while the API server answers the next request for a claim, which then
// fails with a status.
func (b *bed) atNextGet(c kubelettest.ResourceClaim, code int, do func()) {
	var called atomic.Bool
	b.api.Fault(func(r *http.Request, _ kubeapitest.Object) int {
		isFirst := r.URL.Path == claimPath(c) && called.CompareAndSwap(false, true)
		if !isFirst {
			return 0
		}
		do()
		return code
	})
}

// uids returns the UIDs of the claims that have files.
func (b *bed) uids() []string {
	b.Helper()
	list, err := b.claims.Claims()
	must(b, err)
	var uids []string
	for _, c := range list {
		uids = append(uids, c.UID)
	}
	return uids
}

// A claim that is prepared again, after the sources were asked about it and before it is
// removed, has a pod that is about to start.
func TestClaimPreparedAgainDuringASweep(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s, _ := b.serveRegistered()
	b.host.list()
	b.api.set(claim("a"), results(result("one", "usb-1")))
	b.prepare(claim("a"))
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.atNextGet(claim("a"), http.StatusNotFound, func() {
		b.prepare(claim("a"))
	})
	known, err := b.host.known(t.Context())
	must(t, err)
	s.SweepNow(t.Context(), known)
	if uids := b.uids(); !slices.Equal(uids, []string{claim("a").UID}) {
		t.Errorf("claims %q, want the one that was prepared again", uids)
	}
}

// A pod that was deleted with --force no longer has a reservation. Its containers may still
// run when the kubelet prepares the claim for another pod, which it does after a restart.
func TestClaimKeepsTheRunningPodsOfItsLastPreparation(t *testing.T) {
	t.Parallel()
	b := newForced(t, 0)
	later := claim("a")
	later.Pod = "later"
	b.api.set(later, results(result("one", "usb-1")))
	b.host.set(podUID(later), holds.PodEnded)
	b.prepare(later)
	b.unprepare(later)
	b.api.remove(later)
	b.refused("processes of its pod uid-of-pod-a still run")
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.prepare(claim("b"))
}

// A pod whose state can't be read any more counts as running if that was its last state.
func TestReleaseOfAPodThatCanNoLongerBeSeen(t *testing.T) {
	t.Parallel()
	b := newForced(t, 0)
	b.unprepare(claim("a"))
	b.host.set(podUID(claim("a")), holds.PodUnknown)
	b.refused("when it was last seen")
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.prepare(claim("b"))
}

// A device can leave DRA while a prepare waits for its last holder. The kubelet may then
// already have allocated it through a device plugin.
func TestDeviceThatLeavesDuringAPrepare(t *testing.T) {
	t.Parallel()
	b := newForced(t, 0)
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.atNextGet(claim("a"), http.StatusNotFound, func() {
		b.sticks.set(stick("usb:2"))
	})
	b.refuses(claim("b"), "not offered")
	if slices.Contains(b.uids(), claim("b").UID) {
		t.Error("the claim holds a device that is no longer offered")
	}
}
