package holds_test

import (
	"context"
	"testing"
	"testing/synctest"
)

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
