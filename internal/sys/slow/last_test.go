package slow_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

// lasting returns a Last, and the number of its late calls that were announced.
func lasting() (*slow.Last[int, string], *atomic.Int64) {
	var announced atomic.Int64
	return slow.NewLast[int, string](slow.Patience{
		ForOne: patience,
		ForAll: 10 * patience,
		Brief:  time.Millisecond,
		Limit:  256,
		Late:   func() { announced.Add(1) },
	}), &announced
}

// A call that takes too long has its last value. When it has returned, that is announced, but not again if
// the next call is late, too.
func TestLastValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, announced := lasting()
		release := make(chan struct{})
		blocks := func() string {
			<-release
			return "at last"
		}
		quick := func() string { return "quick" }
		late := func() string {
			time.Sleep(2 * patience)
			return "late"
		}
		check := func(key int, f func() string, want string, takes time.Duration) {
			t.Helper()
			start := time.Now()
			value, ok := l.Do(key, f)
			if value != want || ok != (want != "") || time.Since(start) != takes {
				t.Errorf("%q, %t after %v; want %q after %v", value, ok, time.Since(start), want, takes)
			}
		}
		hasAnnounced := func(want int64) {
			t.Helper()
			time.Sleep(4 * patience)
			if got := announced.Swap(0); got != want {
				t.Errorf("%d late calls were announced; want %d", got, want)
			}
		}
		check(1, blocks, "", patience)
		check(2, quick, "quick", 0)
		check(1, blocks, "", 0)
		l.Next()
		check(1, quick, "", 0)
		hasAnnounced(0)
		close(release)
		hasAnnounced(1)
		l.Next()
		check(1, late, "at last", patience)
		hasAnnounced(0)
		l.Next()
		check(1, quick, "quick", 0)
		for i := range 3 {
			l.Next()
			check(1, late, []string{"quick", "late", "late"}[i], patience)
			hasAnnounced([]int64{1, 0, 0}[i])
		}
		if !l.Has(func(key int) bool { return key == 1 }) {
			t.Error("the value is forgotten")
		}
		l.Next()
		l.Next()
		check(1, late, "", patience)
		hasAnnounced(1)
	})
}

// With OnlyLate, a value in time does not stand in for a later call, and a late one does.
func TestOnlyLateValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := lasting()
		l.OnlyLate = true
		blocks := func() string {
			time.Sleep(2 * patience)
			return "late"
		}
		for _, step := range []struct {
			call func() string
			want string
		}{
			{func() string { return "quick" }, "quick"},
			{blocks, ""},
			{blocks, "late"},
		} {
			if value, ok := l.Do(1, step.call); value != step.want || ok != (step.want != "") {
				t.Errorf("%q, %t; want %q", value, ok, step.want)
			}
			time.Sleep(4 * patience)
			l.Next()
		}
	})
}
