package agent

import (
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
	"github.com/generic-dp/generic-dp/matchers"
)

const (
	// searchFor is how long matching waits for a search of the host, whose budget of directory
	// entries is read in less. A file system whose server is gone blocks forever. After waitInAll
	// for all searches of a match, it waits for blockedFor only.
	searchFor  = 500 * time.Millisecond
	waitInAll  = 2 * searchFor
	blockedFor = 10 * time.Millisecond
	// maxSearches is the maximum number of searches at a time, each of which may block a thread.
	maxSearches = 32
)

// hostPaths finds paths of the host for matching. It is safe for concurrent use. A match is a round of its
// searches.
type hostPaths struct {
	// paths says where paths of the host are in this mount namespace.
	paths Paths
	// searches are by a key that identifies the search.
	searches *slow.Last[string, foundPaths]
	// answered says that a search has returned too late whose result no match has used.
	answered signal
}

// foundPaths is the result of a search, and its cost in directory entries.
type foundPaths struct {
	paths []string
	cost  int
}

// newHostPaths returns a hostPaths without any late result.
func newHostPaths(paths Paths) *hostPaths {
	h := &hostPaths{
		paths:    paths,
		answered: newSignal(),
	}
	h.searches = slow.NewLast[string, foundPaths](slow.Patience{
		ForOne:   searchFor,
		ForAll:   waitInAll,
		Brief:    blockedFor,
		Limit:    maxSearches,
		OnlyLate: true,
		Late:     h.answered.send,
	})
	return h
}

// Exists implements matchers.Host.
func (h *hostPaths) Exists(host string, entries *int) bool {
	// The prefix distinguishes the key from the key of a glob.
	found := h.search("="+host, entries, func(*int) []string {
		if h.paths.missing(host) != nil {
			return nil
		}
		return []string{host}
	})
	return len(found) > 0
}

// Glob implements matchers.Host.
func (h *hostPaths) Glob(v pattern.Values, entries *int) []string {
	// The results of equal patterns are shared by all resources that use them.
	key := strings.Join(v.Patterns(), "\n")
	return h.search(key, entries, func(entries *int) []string {
		return v.Glob(h.paths.local, entries)
	})
}

// search runs a search, unless one with that key is running. If it takes too long, the late result
// of an earlier run is used instead. entries is the remaining budget of directory entries, which is
// matchers.NoAnswer if there is no result.
func (h *hostPaths) search(key string, entries *int, run func(entries *int) []string) []string {
	limit := *entries
	found, ok := h.searches.Do(key, func() foundPaths {
		// The search may outlive this call, so it counts in its own variable.
		left := limit
		paths := run(&left)
		return foundPaths{
			paths: paths,
			cost:  limit - left,
		}
	})
	if !ok {
		*entries = matchers.NoAnswer
		return nil
	}
	*entries = max(0, *entries-found.cost)
	return found.paths
}
