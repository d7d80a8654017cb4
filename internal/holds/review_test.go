package holds_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
)

// A slot turns unhealthy if its pod runs and the kubelet has forgotten it. A checkpoint that lacks the
// pod does not prove that: somebody may have replaced it.
func TestForgottenPod(t *testing.T) {
	held := map[string][]string{podUID: {"a"}}
	for name, test := range map[string]struct {
		queryError  error
		after       map[string][]string
		isForgotten bool
	}{
		"the kubelet has forgotten it": {isForgotten: true},
		"the kubelet names it again":   {after: held},
		"the kubelet does not answer":  {queryError: errors.New("no answer")},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(h *host) {
				h.save(held)
				h.cgroups.Start(podUID)
				b := h.start()
				b.Record("claim", []holds.Wanted{wanted("b")})
				b.Await(true)
				h.looks(b, time.Second) // the kubelet has answered before
				b.Release("claim")
				b.Await(false)
				h.query = func() (map[string]string, error) { return nil, test.queryError }
				h.listAgain = func() { h.read(b, test.after) }
				h.read(b, nil)
				b.Look(h.Context())
				if len(b.Refused()) > 0 {
					h.Errorf("refused before the kubelet has answered: %v", b.Refused())
				}
				h.looks(b, time.Second)
				if isForgotten := len(b.Refused()) > 0; isForgotten != test.isForgotten {
					h.Errorf("refused: %v, want it: %t", b.Refused(), test.isForgotten)
				}
				h.wantHolders(b, "after a query", "a", podUID)
				h.read(b, held)
				if len(b.Refused()) > 0 {
					h.Errorf("refused although the kubelet has the pod: %v", b.Refused())
				}
			})
		})
	}
}

// A pod without a process holds its device for other resources while its cgroup exists. The kubelet may
// give its slot to another pod.
func TestPodThatWaitsForAVolume(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(map[string][]string{podUID: {"a"}})
		h.cgroups.Wait(podUID)
		b := h.start()
		h.read(b, nil)
		b.Look(h.Context())
		h.wantHolders(b, "while it waits", "a", podUID)
		other := wanted("a")
		other.Resource = "example.com/other"
		h.mustRefuse(b, other, part)
		h.mustGrant(b, wanted("a"))
		h.cgroups.End(podUID)
		b.Look(h.Context())
		h.wantHolders(b, "after its end", "a", "grant")
	})
}

// The kubelet does not say that a pod has ended: its checkpoint names the pod until it is asked. It is asked
// while something waits for that.
func TestAwaitedEnd(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(map[string][]string{podUID: {"a"}})
		b := h.start()
		h.listAgain = func() { h.read(b, nil) }
		h.looks(b, time.Hour)
		h.wantHolders(b, "while nothing waits", "a", podUID)
		b.Await(true)
		h.looks(b, time.Second)
		h.wantHolders(b, "a second later", "a")
	})
}

// A checkpoint is read while the kubelet does not answer a query: the next version may not have its pods any
// more.
func TestReadsDuringQuery(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(map[string][]string{staticUID: {"a"}})
		b := h.start()
		answer := make(chan struct{})
		h.query = func() (map[string]string, error) {
			<-answer
			return nil, nil
		}
		ctx, cancel := context.WithCancel(h.Context())
		replaced := make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- b.Run(ctx, replaced)
		}()
		synctest.Wait() // it queries the name of the static pod
		for _, pods := range []map[string][]string{{nextUID: {"b"}}, nil} {
			h.save(pods)
			replaced <- struct{}{}
			synctest.Wait()
		}
		h.wantHolders(b, "during the query", "b", nextUID)
		cancel()
		close(answer)
		if err := <-ended; err != nil {
			h.Errorf("Run: %v", err)
		}
	})
}
