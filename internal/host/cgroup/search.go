package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// errTooLarge is the result of a search that found nothing within its limits.
var errTooLarge = errors.New("no cgroup of the kubelet was found within the limits of the search")

// errNoPods is the result of a search that found nothing.
var errNoPods = errors.New("it has no cgroup of a kubelet, \"kubepods\" or \"kubepods.slice\": " +
	"it may be the tree of a container, or the kubelet has not started yet")

// isParent reports whether a cgroup is the parent of the pods of a kubelet. Its name ends
// so whatever the kubelet's cgroupRoot is
// (defaultNodeAllocatableCgroupName, pkg/kubelet/cm/node_container_manager_linux.go).
func isParent(name string) bool {
	isSlice := name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
	return name == "kubepods" || isSlice
}

// findParents searches for the parents of pods, level by level, and not below them. It is complete
// unless the search reached a limit. Links are not followed: the kernel makes none inside a
// hierarchy.
func findParents(base string, deadline time.Time, now func() time.Time) (parents []string, complete bool) {
	left := maxEntries
	complete = true
	level := []string{base}
	for range maxDepth {
		var next []string
		for _, dir := range level {
			if left <= 0 || now().After(deadline) {
				return parents, false
			}
			entries, err := os.ReadDir(dir)
			isGone := errors.Is(err, fs.ErrNotExist)
			complete = complete && (err == nil || isGone)
			left -= len(entries)
			for _, e := range entries {
				sub := filepath.Join(dir, e.Name())
				if e.IsDir() && isParent(e.Name()) {
					parents = append(parents, sub)
				} else if e.IsDir() {
					next = append(next, sub)
				}
			}
		}
		level = next
	}
	return parents, complete
}
