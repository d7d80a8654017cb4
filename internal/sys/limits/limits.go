// Package limits keeps a process within its share of a node: two CPUs, and the memory limit of its
// cgroup.
package limits

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// CPUs lets goroutines run on two CPUs, unless GOMAXPROCS is set. A scan uses no more than
// two, and the runtime keeps memory for each CPU: several megabytes on a large node. It runs
// before everything else, because the runtime stops all goroutines for the change.
func CPUs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	}
}

// Memory keeps the heap within the memory limit of the cgroup, unless GOMEMLIMIT is set: the
// garbage collector does not know that limit and would let the heap double. A fifth is left for
// memory outside the heap, such as socket buffers. Without a limit it changes nothing.
func Memory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	// The files of the process's own cgroup are below the real root, not below --cgroup.
	limit := ofMemory(os.DirFS("/"))
	if limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 5 * 4)
	}
}

// limitFiles are the files with the memory limit of a cgroup, by controller. A cgroup of version 2
// has no controller in /proc/self/cgroup.
var limitFiles = map[string]string{
	"":       "memory.max",
	"memory": "memory.limit_in_bytes",
}

// ofMemory returns the lowest memory limit in bytes of this process's cgroup and the cgroups
// above it, of version 2 or 1. It tries the root as well, because a container may see its own
// cgroup as the root, whatever its path. The result is the largest integer if there is no limit,
// or if nothing can be read.
func ofMemory(host fs.FS) int64 {
	lowest := int64(math.MaxInt64)
	cgroups, _ := fs.ReadFile(host, "proc/self/cgroup")
	// With version 1, each hierarchy has a line of its own.
	for line := range strings.Lines(string(cgroups)) { // "4:memory:/path" or "0::/path"
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controller, dir, _ := strings.Cut(line, ":")
		file, isLimited := limitFiles[controller]
		if !isLimited {
			continue
		}
		// Each cgroup is also limited by all cgroups above it: the limit of a pod applies to its
		// containers.
		for dir = path.Join("/", dir); ; dir = path.Dir(dir) {
			name := path.Join("sys/fs/cgroup", controller, dir, file)
			lowest = min(lowest, readLimit(host, name))
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}

// readLimit reads a memory limit in bytes. It returns the largest integer if there is no limit.
func readLimit(host fs.FS, name string) int64 {
	text, _ := fs.ReadFile(host, name)
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxInt64 // no such file, or "max"
	}
	return limit
}
