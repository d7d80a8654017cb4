package agent

import (
	"context"
	"strings"
	"sync"
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

// hostPaths finds paths of the host for matching. It is safe for concurrent use.
type hostPaths struct {
	// paths says where paths of the host are in this mount namespace.
	paths Paths
	// calls runs the searches, at most one for each key.
	calls slow.Calls[string, foundPaths]
	// answered says that a search has returned too late whose result no match has used.
	answered signal

	// mu guards the fields below. Searches end in their own goroutines.
	mu sync.Mutex
	// waited is how long this match has waited for searches without a result.
	waited time.Duration
	// late has the results of searches that took too long, by key, for the next match.
	late map[string]lateSearch
}

// foundPaths is the result of a search, and its cost in directory entries.
type foundPaths struct {
	paths []string
	cost  int
}

// lateSearch is a search that took too long.
type lateSearch struct {
	foundPaths
	// hasReturned is set once there is a result.
	hasReturned bool
	// isAnnounced is set once the result has caused a match.
	isAnnounced bool
}

// newHostPaths returns a hostPaths without any late result.
func newHostPaths(paths Paths) *hostPaths {
	h := &hostPaths{
		paths:    paths,
		answered: newSignal(),
		late:     make(map[string]lateSearch),
	}
	h.calls.Limit = maxSearches
	h.calls.Late = h.announce
	return h
}

// next begins a match. view calls it before each match, so that one slow match does not make the
// next one impatient.
func (h *hostPaths) next() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waited = 0
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
	patience := h.patience()
	began := time.Now()
	// No context ends the search: a system call that blocks cannot be interrupted.
	found, _, ok := h.calls.Do(context.Background(), key, patience, func() foundPaths {
		// The search may outlive this call, so it counts in its own variable.
		left := limit
		paths := run(&left)
		found := foundPaths{
			paths: paths,
			cost:  limit - left,
		}
		h.ended(key, found, time.Since(began) < patience)
		return found
	})
	if !ok {
		found, ok = h.instead(key, time.Since(began))
	}
	if !ok {
		*entries = matchers.NoAnswer
		return nil
	}
	*entries = max(0, *entries-found.cost)
	return found.paths
}

// patience returns how long to wait for a search.
func (h *hostPaths) patience() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waited < waitInAll {
		return searchFor
	}
	return blockedFor
}

// ended keeps the result of a search that was too late.
func (h *hostPaths) ended(key string, found foundPaths, inTime bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if inTime {
		delete(h.late, key)
		return
	}
	// Edits of the configuration add keys that no match uses again. The limit bounds them.
	if len(h.late) >= maxSearches {
		clear(h.late)
	}
	h.late[key] = lateSearch{
		foundPaths:  found,
		hasReturned: true,
		// The announcement may precede or follow the result.
		isAnnounced: h.late[key].isAnnounced,
	}
}

// instead returns the late result of a search that is too late again.
func (h *hostPaths) instead(key string, waited time.Duration) (foundPaths, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waited += waited
	earlier := h.late[key]
	return earlier.foundPaths, earlier.hasReturned
}

// announce requests a match for the first late result of a search: one that is always late must
// not cause endless matches.
func (h *hostPaths) announce(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	search := h.late[key]
	if !search.isAnnounced {
		h.answered.send()
	}
	search.isAnnounced = true
	h.late[key] = search
}
