package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// findParents searches for the parents of pods, level by level, and not below them. It adds the known ones
// if the search is cut off after limit entries, or by an error. Links are not followed: the kernel makes none
// inside a hierarchy.
func findParents(base string, limit int, known []string) (parents []string, err error) {
	isComplete := true
	level := []string{base}
	for range maxDepth {
		var next []string
		for _, dir := range level {
			entries, err := os.ReadDir(dir)
			isGone := errors.Is(err, fs.ErrNotExist)
			limit -= len(entries)
			isComplete = isComplete && limit >= 0 && (err == nil || isGone)
			if limit < 0 {
				break
			}
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
	if isComplete && len(parents) == 0 {
		return nil, fmt.Errorf("%s: %w", base, errNoPods)
	}
	if !isComplete {
		parents = append(parents, known...)
		slices.Sort(parents)
		parents = slices.Compact(parents)
	}
	if len(parents) == 0 {
		return nil, errTooLarge
	}
	return parents, nil
}
