package cgroup

import (
	"errors"
	"io"
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

// maxParents is the maximum number of parents of pods. A node has one for each kubelet.
const maxParents = 16

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
				complete = false
				break
			}
			names, all := subdirs(dir, &left)
			complete = complete && all
			for _, name := range names {
				sub := filepath.Join(dir, name)
				if !isParent(name) {
					next = append(next, sub)
					continue
				}
				if len(parents) == maxParents {
					return parents, complete
				}
				parents = append(parents, sub)
			}
		}
		level = next
	}
	return parents, complete
}

// readAtOnce is how many entries of a directory are in memory at the same time.
const readAtOnce = 256

// subdirs returns the names of the directories in a directory, and whether these are all.
// Every entry costs one of left.
func subdirs(dir string, left *int) (names []string, all bool) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	for *left > 0 {
		entries, err := f.ReadDir(readAtOnce)
		*left -= len(entries)
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if err != nil {
			return names, err == io.EOF
		}
	}
	return names, false
}
