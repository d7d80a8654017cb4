//go:build adversary

package adversary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// cgroup is a control group, v1 or v2, with the memory limit of a manifest.
type cgroup struct {
	testing.TB
	dir string
	v2  bool
}

// The memory limit of the DaemonSet is in its manifest, and the limit of evict in the values of the
// chart.
const (
	daemonSet       = "../../deploy/generic-dp.yaml"
	evictDeployment = "../../deploy/helm/generic-dp/values.yaml"
)

func newCgroup(t testing.TB, manifest string) *cgroup {
	t.Helper()
	g := &cgroup{TB: t}
	root := "/sys/fs/cgroup/memory"
	if controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil && strings.Contains(string(controllers), "memory") {
		root, g.v2 = "/sys/fs/cgroup", true
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	dir, err := os.MkdirTemp(root, "generic-dp-adversary-")
	if err != nil {
		t.Fatalf("create a cgroup for memory: %v", err)
	}
	g.dir = dir
	t.Cleanup(g.remove)
	if g.v2 {
		g.write("memory.max", memoryLimit(t, manifest))
		_ = os.WriteFile(filepath.Join(g.dir, "memory.swap.max"), []byte("0"), 0)
	} else {
		g.write("memory.limit_in_bytes", memoryLimit(t, manifest))
	}
	return g
}

// memoryLimit is the memory limit in a manifest.
func memoryLimit(t testing.TB, manifest string) string {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest == evictDeployment {
		_, text, _ = bytes.Cut(text, []byte("\nevict:\n"))
	}
	m := regexp.MustCompile(`limits:\n(?: +ephemeral-storage: .+\n)? +memory: (\d+)Mi\n`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s: found no memory limit in Mi", manifest)
	}
	return string(m[1]) + "M"
}

func (g *cgroup) procs() string { return filepath.Join(g.dir, "cgroup.procs") }

func (g *cgroup) write(file, text string) {
	g.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0); err != nil {
		g.Fatal(err)
	}
}

func (g *cgroup) read(file string) string {
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		g.Error(err)
	}
	return strings.TrimSpace(string(text))
}

// peak is the maximum memory usage in MiB.
func (g *cgroup) peak() float64 {
	file := "memory.max_usage_in_bytes"
	if g.v2 {
		file = "memory.peak"
	}
	n, err := strconv.ParseFloat(g.read(file), 64)
	if err != nil {
		g.Error(err)
	}
	return n / (1 << 20)
}

// kills is the number of OOM kills.
func (g *cgroup) kills() (n int) {
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	_, rest, _ := strings.Cut(g.read(file), "oom_kill ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		g.Errorf("%s: %v", file, err)
	}
	return n
}

// remove removes the cgroup once its last process has ended.
func (g *cgroup) remove() {
	if err := poll(func() error { return os.Remove(g.dir) }); err != nil {
		g.Errorf("remove the cgroup, after %s: %v", startTime, err)
	}
}
