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
	// entries is read in less. A file system whose server is gone blocks for ever. After
	// waitInAll for all searches of a match, it waits for blockedFor only.
	searchFor  = 500 * time.Millisecond
	waitInAll  = 2 * searchFor
	blockedFor = 10 * time.Millisecond
	// maxSearches is the maximum number of searches at a time, each of which may block a thread.
	maxSearches = 32
)

// hostPaths finds paths of the host for matching. Safe for concurrent use.
type hostPaths struct {
	paths    Paths
	calls    slow.Calls[string, foundPaths]
	answered signal // a search has returned too late, and there was no result before

	mu     sync.Mutex
	waited time.Duration         // for searches without a result, in this match
	late   map[string]lateSearch // the next match uses their results
}

// foundPaths is the result of a search, and its cost in directory entries.
type foundPaths struct {
	paths []string
	cost  int
}

// lateSearch is a search that took too long.
type lateSearch struct {
	foundPaths
	known     bool // it has returned
	announced bool
}

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

// next begins a match.
func (h *hostPaths) next() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waited = 0
}

// Exists implements matchers.Host.
func (h *hostPaths) Exists(host string, entries *int) bool {
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
	key := strings.Join(v.Patterns(), "\n")
	return h.search(key, entries, func(entries *int) []string {
		return v.Glob(h.paths.local, entries)
	})
}

// search runs a search, unless one with that key is running. If it takes too long, the result of
// an earlier run that took too long stands in.
func (h *hostPaths) search(key string, entries *int, run func(entries *int) []string) []string {
	limit := *entries
	patience := h.patience()
	began := time.Now()
	found, _, ok := h.calls.Do(context.Background(), key, patience, func() foundPaths {
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
	if len(h.late) >= maxSearches {
		clear(h.late)
	}
	h.late[key] = lateSearch{
		foundPaths: found,
		known:      true,
		announced:  h.late[key].announced,
	}
}

// instead returns the late result of a search that is too late again.
func (h *hostPaths) instead(key string, waited time.Duration) (foundPaths, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waited += waited
	earlier := h.late[key]
	return earlier.foundPaths, earlier.known
}

// announce requests a match for the first late result of a search: one that is always late must
// not cause endless matches.
func (h *hostPaths) announce(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	search := h.late[key]
	if !search.announced {
		h.answered.send()
	}
	search.announced = true
	h.late[key] = search
}
