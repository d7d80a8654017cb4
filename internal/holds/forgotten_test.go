package holds_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"
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

// The kubelet frees the slot of a static pod before its processes have ended: the next pod gets it when they
// have, and the slot is unhealthy only if they do not end.
func TestPodThatEndsAfterItWasForgotten(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(map[string][]string{podUID: {"a"}})
		h.cgroups.Start(podUID)
		b := h.start()
		h.read(b, nil)
		if next := b.Look(h.Context()); len(b.Refused()) > 0 || next.IsZero() {
			h.Errorf("at once: refused %v, the next look is at %s", b.Refused(), next)
		}
		time.Sleep(time.Second)
		if b.Look(h.Context()); len(b.Refused()) != 1 {
			h.Errorf("after a second: refused %v", b.Refused())
		}
		h.cgroups.End(podUID)
		if next := b.Look(h.Context()); len(b.Refused()) > 0 || !next.IsZero() {
			h.Errorf("after its end: refused %v, the next look is at %s", b.Refused(), next)
		}
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

// While the successor reads the checkpoint again, no pod is lost: neither one that runs, nor one that has no
// cgroup yet.
func TestLoadDuringTakeOver(t *testing.T) {
	onHost(t, func(h *host) {
		h.cgroups.Start(podUID)
		h.save(map[string][]string{podUID: {"a"}, nextUID: {"b"}}) // the network of the second one is not ready
		b := h.start()
		answers := make(chan struct{}, 1)
		b.Generation = func() uint64 {
			<-answers
			return 1
		}
		b.Save()
		b.Await(true)
		b.Look(h.Context())
		time.Sleep(time.Second)
		b.Look(h.Context()) // asks the kubelet
		b.Load(h.Context(), true)
		b.Look(h.Context())
		if refused := b.Refused(); len(refused) > 0 {
			h.Errorf("refused: %v", refused)
		}
		h.wantHolders(b, "during the read", "b", nextUID)
		answers <- struct{}{}
		synctest.Wait()
		b.Look(h.Context())
		h.wantHolders(b, "after the read", "a", podUID)
		h.wantHolders(b, "after the read", "b", nextUID)
	})
}

// Another program may empty the run directory while the program runs: the next change is written.
func TestRemovedJournal(t *testing.T) {
	onHost(t, func(h *host) {
		h.cgroups.Start(podUID)
		h.save(map[string][]string{podUID: {"a"}})
		b := h.start()
		b.Look(h.Context())
		h.must(os.Remove(h.journal()))
		h.read(b, nil) // the kubelet forgets the pod, which runs
		time.Sleep(2 * time.Second)
		b.Look(h.Context())
		b.Retire()
		next := h.start()
		next.Look(h.Context())
		h.mustRefuse(next, wanted("a"), podUID)
	})
}
