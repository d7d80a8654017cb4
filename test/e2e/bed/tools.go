package bed

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// BinEnv names a directory with kubelet, containerd, its shim, ctr and runc, to use
// instead of those that deps.sh built.
const BinEnv = "GENERIC_DP_E2E_BIN"

// moduleDir is the directory of the module of these tests.
func moduleDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(file))
}

// tools are the programs of a bed.
type tools struct {
	bin string // directory of the built programs
	cni string // directory of the CNI plugins
}

func (t tools) path(name string) string { return filepath.Join(t.bin, name) }

// findTools finds the programs of a bed. A missing one fails the test: a skipped test
// would go unnoticed.
func findTools(t testing.TB, kubelet string) tools {
	t.Helper()
	tl := tools{bin: os.Getenv(BinEnv)}
	if tl.bin == "" {
		out, err := exec.Command(filepath.Join(moduleDir(), "deps.sh"), "--bin").Output()
		if err != nil {
			t.Fatalf("deps.sh --bin: %v", err)
		}
		tl.bin = strings.TrimSpace(string(out))
	}
	for _, name := range []string{kubelet, "containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		if _, err := os.Stat(tl.path(name)); err != nil {
			t.Fatalf("%v: run make e2e-deps, or test/e2e/deps.sh as it says at its head", err)
		}
	}
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			tl.cni = dir
			return tl
		}
	}
	t.Fatal("no CNI plugins: run make e2e-deps")
	return tl
}

// buildTool builds the tool that runs beside and inside the containers, always from the
// tree under test.
func buildTool(t testing.TB, out string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./cmd/tool")
	cmd.Dir = moduleDir()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // static: its image contains no other file
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tool: %v\n%s", err, text)
	}
}
