package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/matchers"
)

// A search that blocks has no answer, and its late result is used by the next match.
func TestBlockedSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHostPaths(Paths{})
		release := make(chan struct{})
		blocks := func(entries *int) []string {
			<-release
			*entries -= 10
			return []string{"/x"}
		}
		check := func(key string, run func(*int) []string, want []string, wantLeft int, wantTime time.Duration) {
			t.Helper()
			began := time.Now()
			entries := 100
			got := h.search(key, &entries, run)
			took := time.Since(began)
			if !slices.Equal(got, want) || entries != wantLeft || took != wantTime {
				t.Errorf("%s: %q, %d left, after %v; want %q, %d, %v", key, got, entries, took, want, wantLeft, wantTime)
			}
		}
		quick := func(entries *int) []string {
			*entries--
			return []string{"/quick"}
		}
		check("a", blocks, nil, matchers.NoAnswer, searchFor)
		check("b", quick, []string{"/quick"}, 99, 0)
		check("a", blocks, nil, matchers.NoAnswer, 0)
		check("c", blocks, nil, matchers.NoAnswer, searchFor)
		check("d", blocks, nil, matchers.NoAnswer, blockedFor)
		check("b", quick, []string{"/quick"}, 99, 0)
		close(release)
		synctest.Wait()
		if len(h.answered) != 1 {
			t.Error("no match is requested for the late results")
		}
		<-h.answered

		late := func(*int) []string {
			time.Sleep(2 * searchFor)
			return []string{"/later"}
		}
		h.searches.Next()
		check("a", late, []string{"/x"}, 90, searchFor)
		time.Sleep(4 * searchFor)
		if len(h.answered) != 0 {
			t.Error("a match is requested for a search that is late again")
		}
		check("a", quick, []string{"/quick"}, 99, 0)
	})
}
