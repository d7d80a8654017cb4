package slow_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

const patience = 50 * time.Millisecond

// A blocked call is abandoned, blocks no other caller, and runs once.
func TestCallThatBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var late []string
		calls := slow.Calls[string, int]{Late: func(key string) { late = append(late, key) }}
		release := make(chan struct{})
		ran := 0
		blocks := func() int {
			ran++
			<-release
			return 1
		}
		check := func(key string, f func() int, want int, wantOK bool, wantTime, wantRunning time.Duration) {
			t.Helper()
			start := time.Now()
			got, running, ok := calls.Do(t.Context(), key, patience, f)
			if got != want || ok != wantOK || running != wantRunning || time.Since(start) != wantTime {
				t.Errorf("%s: %d, %t, running for %v, after %v; want %d, %t, %v, %v", key, got, ok, running, time.Since(start), want, wantOK, wantRunning, wantTime)
			}
		}
		quick := func() int { return 2 }
		check("a", blocks, 0, false, patience, patience)
		check("b", quick, 2, true, 0, 0)
		check("a", quick, 0, false, 0, patience)
		time.Sleep(patience)
		check("a", quick, 0, false, 0, 2*patience)
		if len(late) > 0 {
			t.Errorf("late: %q, and nothing has ended", late)
		}
		close(release)
		synctest.Wait()
		if ran != 1 || !slices.Equal(late, []string{"a"}) {
			t.Errorf("%d calls, late: %q", ran, late)
		}
		check("a", quick, 2, true, 0, 0)
	})
}

// Callers of one key share a call; a context ends the wait of its caller only.
func TestCallersShareACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls slow.Calls[string, int]
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		ran := 0
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				ctx, want := ctx, false
				if i > 0 {
					ctx, want = t.Context(), true
				}
				got, _, ok := calls.Do(ctx, "a", patience, func() int {
					mu.Lock()
					defer mu.Unlock()
					ran++
					time.Sleep(patience / 2)
					return 7
				})
				if ok != want || want && got != 7 {
					t.Errorf("caller %d: %d, %t", i, got, ok)
				}
			})
		}
		synctest.Wait()
		cancel()
		callers.Wait()
		if ran != 1 {
			t.Errorf("ran %d times", ran)
		}
	})
}

// At the limit a call does not run, and nobody waits for it.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := slow.Calls[int, int]{Limit: 2}
		release := make(chan struct{})
		blocks := func() int {
			<-release
			return 1
		}
		start := time.Now()
		for key := range 4 {
			_, _, ok := calls.Do(t.Context(), key, patience, blocks)
			if ok {
				t.Errorf("call %d has a result", key)
			}
		}
		if took := time.Since(start); took != 2*patience {
			t.Errorf("4 calls took %v, want %v", took, 2*patience)
		}
		close(release)
		synctest.Wait()
		_, _, ok := calls.Do(t.Context(), 3, patience, blocks)
		if !ok {
			t.Error("no call below the limit")
		}
	})
}
