package main

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

// limitMemory keeps memory small, unless GOMAXPROCS and GOMEMLIMIT say otherwise.
//
// Goroutines run on two CPUs, as many as a scan uses: for each further one the runtime
// keeps memory of its own, together several megabytes on a large node.
//
// The heap stays within the memory limit of the cgroup: the garbage collector knows of
// none and lets the heap double. A fifth is left to what is not the heap, such as buffers
// of sockets.
func limitMemory() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	}
	if limit := memoryLimit(os.DirFS("/")); os.Getenv("GOMEMLIMIT") == "" && limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 5 * 4)
	}
}

// memoryLimit is the lowest memory limit of this process's cgroup and those above it, of
// version 2 or 1. A container may see its own cgroup as the root, whatever its path.
func memoryLimit(host fs.FS) int64 {
	lowest := int64(math.MaxInt64)
	cgroups, _ := fs.ReadFile(host, "proc/self/cgroup")
	for line := range strings.Lines(string(cgroups)) { // "4:memory:/path" or "0::/path"
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controller, dir, _ := strings.Cut(line, ":")
		file := map[string]string{"": "memory.max", "memory": "memory.limit_in_bytes"}[controller]
		for dir = path.Join("/", dir); file != ""; dir = path.Dir(dir) {
			text, _ := fs.ReadFile(host, path.Join("sys/fs/cgroup", controller, dir, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				lowest = min(lowest, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}
