package agent

import (
	"os"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/sys/slow"
)

const (
	// searchFor is how long matching waits for a search of the host. A file system whose server is gone
	// blocks forever. After waitInAll for all searches of a match, it waits for blockedFor only.
	searchFor  = 500 * time.Millisecond
	waitInAll  = 2 * searchFor
	blockedFor = time.Millisecond
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
	// recorded are the paths that were found, for a recording. It is nil without one.
	recorded map[string]bool
}

// foundPaths is the result of a search. If it is not complete, the search was cut off.
type foundPaths struct {
	paths    []string
	complete bool
}

// newHostPaths returns a hostPaths without any late result. late has a value when a search has returned too
// late whose result no match has used.
func newHostPaths(paths Paths, late signal) *hostPaths {
	h := &hostPaths{paths: paths}
	h.searches = slow.NewLast[string, foundPaths](slow.Patience{
		ForOne:   searchFor,
		ForAll:   waitInAll,
		Brief:    blockedFor,
		Limit:    maxSearches,
		OnlyLate: true,
		Late:     late.send,
	})
	return h
}

// Exists implements matchers.Host.
func (h *hostPaths) Exists(host string) (exists, known bool) {
	// The prefix distinguishes the key from the key of a glob.
	found, known := h.searches.Do("="+host, func() foundPaths {
		if h.paths.missing(host) != nil {
			return foundPaths{}
		}
		return foundPaths{paths: []string{host}}
	})
	h.record(found.paths)
	return len(found.paths) > 0, known
}

// Glob implements matchers.Host. If the search takes too long, the late result of an earlier one is used
// instead.
func (h *hostPaths) Glob(v pattern.Values, until time.Time) (paths []string, complete bool) {
	// The results of equal patterns are shared by all resources that use them.
	key := strings.Join(v.Patterns(), "\n")
	found, _ := h.searches.Do(key, func() (found foundPaths) {
		found.paths, found.complete = v.Glob(h.paths.local, until)
		return found
	})
	h.record(found.paths)
	return found.paths, found.complete
}

// record remembers paths for a recording.
func (h *hostPaths) record(paths []string) {
	if h.recorded == nil {
		return
	}
	for _, p := range paths {
		h.recorded[p] = true
	}
}

// files lists the recorded paths outside of /dev, of which a scan reads everything. A directory ends with
// "/". The links of sysfs that matter are recorded with their targets.
func (h *hostPaths) files() []string {
	var files []string
	for p := range h.recorded {
		info, err := os.Lstat(h.paths.local(p))
		_, isOfDev := below(p, "/dev")
		if err != nil || isOfDev {
			continue
		}
		_, isOfSys := below(p, "/sys")
		isLink := info.Mode()&os.ModeSymlink != 0
		if isOfSys && isLink {
			continue
		}
		// A linked directory is recorded as one, with what was found below it.
		if target, err := os.Stat(h.paths.local(p)); err == nil {
			info = target
		}
		if info.IsDir() {
			p += "/"
		}
		files = append(files, p)
	}
	return files
}
