package dra_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// forced makes claim a with usb-1, whose pod was deleted with --force while its containers run:
// neither the API server nor the kubelet knows the claim. Claim b has the same device now.
func forced(b *bed) {
	b.Helper()
	b.host.list()
	b.host.set(podUID(claim("a")), holds.PodRunning)
	b.api.set(claim("a"), results(result("one", "usb-1")))
	b.prepare(claim("a"))
	b.api.remove(claim("a"))
	b.api.set(claim("b"), results(result("one", "usb-1")))
}

// newForced is a bed after forced, where a prepare waits for 3 s. start is how long a pod may need to start.
func newForced(t *testing.T, start time.Duration) *bed {
	t.Helper()
	b := newBed(t)
	b.answer = 3 * time.Second
	b.start = start
	b.serveRegistered()
	forced(b)
	return b
}

// refused prepares claim b and wants an error.
func (b *bed) refused(want string) {
	b.Helper()
	_, err := b.kubelet.PrepareClaim(b.Context(), dra.Driver, claim("b"))
	if err == nil || !strings.Contains(err.Error(), "held by claim lab/a") || !strings.Contains(err.Error(), want) {
		b.Errorf("second claim of a device: %v, want held by claim lab/a and %q", err, want)
	}
}

func TestClaimEndsWithEvidence(t *testing.T) {
	t.Parallel()
	const noSource = "no source tells whether its containers have ended"
	for what, test := range map[string]struct {
		change func(b *bed)
		want   string // empty: claim b gets the device
	}{
		"pod runs":                {func(*bed) {}, "processes of its pod uid-of-pod-a still run"},
		"pod ended":               {func(b *bed) { b.host.set(podUID(claim("a")), holds.PodEnded) }, ""},
		"cgroups are not visible": {func(b *bed) { b.host.set(podUID(claim("a")), holds.PodUnknown) }, noSource},
		"the kubelet lists it":    {func(b *bed) { b.host.set(podUID(claim("a")), holds.PodEnded); b.host.list(claim("a").UID) }, "the kubelet lists it"},
		"the kubelet is silent":   {func(b *bed) { b.host.set(podUID(claim("a")), holds.PodEnded); b.host.listed = nil }, "the kubelet can't be asked"},
		"the API server has it": {func(b *bed) {
			b.host.set(podUID(claim("a")), holds.PodEnded)
			b.api.set(claim("a"), results(result("one", "usb-1")))
		}, "the API server has it"},
		"no allocation":              {func(b *bed) { b.host.set(podUID(claim("a")), holds.PodEnded); b.api.set(claim("a"), "") }, ""},
		"no allocation, but it runs": {func(b *bed) { b.api.set(claim("a"), "") }, "still run"},
		"the API server fails": {func(b *bed) {
			b.host.set(podUID(claim("a")), holds.PodEnded)
			b.api.Fault(func(r *http.Request, _ kubeapitest.Object) int {
				if r.URL.Path == claimPath(claim("a")) {
					return http.StatusInternalServerError
				}
				return 0
			})
		}, "can't be read"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, restarted := range []bool{false, true} {
				b := newBed(t)
				if test.want != "" { // the others may take their time
					b.answer = 2 * time.Second
				}
				s, stop := b.serveRegistered()
				forced(b)
				if restarted { // the files of claims have everything
					stop()
					b.untilDrivers(0)
					s, _ = b.serveRegistered()
				}
				test.change(b)
				known, err := b.host.known(t.Context())
				if err == nil && test.want != "" {
					s.SweepNow(t.Context(), known)
				}
				if test.want != "" {
					b.refused(test.want)
				} else if _, err := b.kubelet.PrepareClaim(t.Context(), dra.Driver, claim("b")); err != nil {
					t.Errorf("restarted %v: %v", restarted, err)
				}
			}
		})
	}
}

// A prepare waits until the containers of the last holder have ended: an error would cost the
// pod a minute.
func TestPrepareWaitsForTheLastHolder(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(b *bed){
		"processes end": func(b *bed) { b.host.set(podUID(claim("a")), holds.PodEnded) },
		"the kubelet unprepares": func(b *bed) {
			b.host.set(podUID(claim("a")), holds.PodEnded)
			b.unprepare(claim("a"))
		},
		"pods of an unknown state": func(b *bed) {
			b.unprepare(claim("a"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.serveRegistered()
			forced(b)
			if what == "pods of an unknown state" {
				b.host.set(podUID(claim("a")), holds.PodUnknown)
			}
			prepared := make(chan error, 1)
			go func() {
				_, err := b.kubelet.PrepareClaim(context.Background(), dra.Driver, claim("b"))
				prepared <- err
			}()
			select {
			case err := <-prepared:
				t.Fatalf("the claim was prepared while the device is held: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			end(b)
			if err := <-prepared; err != nil {
				t.Error(err)
			}
		})
	}
}

// The kubelet unprepares the claims of a pod that was deleted with --force within a minute,
// whether its containers have ended or not.
func TestReleaseOfARunningPod(t *testing.T) {
	t.Parallel()
	b := newForced(t, 0)
	for range 2 {
		if err := b.kubelet.UnprepareClaim(t.Context(), claim("a").UID); err != nil {
			t.Errorf("the kubelet could not end the pod: %v", err)
		}
	}
	b.refused("still run")
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.until("removal of the claim", func() bool {
		left, err := b.claims.Claims()
		return err == nil && len(left) == 0
	})
	b.prepare(claim("b"))
}

// A pod whose claim was prepared a moment ago may have no process yet.
func TestPodThatHasNotStarted(t *testing.T) {
	t.Parallel()
	b := newForced(t, time.Hour)
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.refused("its pod may start within")
	b.host.set(podUID(claim("a")), holds.PodRunning)
	b.refused("still run")
	b.host.set(podUID(claim("a")), holds.PodEnded)
	b.prepare(claim("b"))
}

// Claims for one device that arrive at once: one of them gets it.
func TestClaimsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.serveRegistered()
	b.host.list()
	const n = 20
	errs := make(chan error, n)
	for i := range n {
		c := claim(string(rune('a' + i)))
		b.api.set(c, results(result("one", "usb-1")))
		go func() {
			_, err := b.kubelet.PrepareClaim(context.Background(), dra.Driver, c)
			errs <- err
		}()
	}
	prepared := 0
	for range n {
		if err := <-errs; err == nil {
			prepared++
		}
	}
	left, err := b.claims.Claims()
	if prepared != 1 || len(left) != 1 || err != nil {
		t.Errorf("%d claims of %d were prepared, with %d files, %v, want 1", prepared, n, len(left), err)
	}
}

// A claim with lists that no API server makes is refused, and so are names of requests that
// would be paths.
func TestClaimsWithoutLimits(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.serveRegistered()
	repeated := func(n int) string {
		many := make([]string, n)
		for i := range many {
			many[i] = result("one", "usb-1")
		}
		return results(many...)
	}
	for allocation, want := range map[string]string{
		repeated(1000):                                    "more than 256 elements",
		results(result("../../etc", "usb-1")):             "must be a DNS label",
		results(result(strings.Repeat("a", 64), "usb-1")): "must be a DNS label",
		results(result("a/b/c", "usb-1")):                 "must be a DNS label",
		results(result("", "usb-1")):                      "must be a DNS label",
	} {
		b.api.set(claim("a"), allocation)
		b.refuses(claim("a"), want)
	}
}
