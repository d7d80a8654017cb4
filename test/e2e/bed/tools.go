package bed

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/product"
)

const (
	// binEnv names a directory with kubelet, containerd, its shim, ctr and runc, instead
	// of the one that deps.sh fills.
	binEnv = "GENERIC_DP_E2E_BIN"
	// nextEnv requests the tests on the next minor version of Kubernetes.
	nextEnv = "GENERIC_DP_E2E_NEXT"
	// allEnv requests all tests on both versions, see OnVersions.
	allEnv = "GENERIC_DP_E2E_ALL"
)

// Version is a minor version of Kubernetes that deps.sh builds. The zero value is Current.
type Version struct {
	// Minor is its name, such as "v1.37".
	Minor string
	// suffix distinguishes its programs from those of Current.
	suffix string
}

var (
	// Current is the version that all tests run on.
	Current = Version{Minor: "v1.36"}
	// Next is the next minor version. Only deps.sh --next builds it, which takes minutes.
	Next = Version{Minor: "v1.37", suffix: "-1.37"}
)

// Program returns the name of a program of Kubernetes in this version.
func (v Version) Program(name string) string { return name + v.suffix }

// SkipUnlessBuilt skips a test on Next unless it is requested.
func (v Version) SkipUnlessBuilt(t testing.TB) {
	t.Helper()
	if v == Next && os.Getenv(nextEnv) == "" {
		t.Skipf("%s is not set: Kubernetes %s is built by deps.sh --next only", nextEnv, v.Minor)
	}
}

// OnEachVersion runs a test on each version of Kubernetes, in parallel.
func OnEachVersion(t *testing.T, test func(t *testing.T, v Version)) {
	t.Helper()
	for _, v := range []Version{Current, Next} {
		t.Run(v.Minor, func(t *testing.T) {
			t.Parallel()
			v.SkipUnlessBuilt(t)
			test(t, v)
		})
	}
}

// OnVersions runs a test on Current, and in parallel on Next if GENERIC_DP_E2E_ALL is set: all tests
// on both versions take half an hour on two cores. Tests of what the API server validates, and of a
// cluster as a whole, use OnEachVersion.
func OnVersions(t *testing.T, test func(t *testing.T, v Version)) {
	t.Helper()
	if os.Getenv(allEnv) != "" {
		OnEachVersion(t, test)
		return
	}
	t.Run(Current.Minor, func(t *testing.T) {
		t.Parallel()
		test(t, Current)
	})
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
	tl := tools{bin: os.Getenv(binEnv)}
	if tl.bin == "" {
		out, err := exec.Command(product.Repository("test", "e2e", "deps.sh"), "--bin").Output()
		if err != nil {
			t.Fatalf("deps.sh --bin: %v", err)
		}
		tl.bin = strings.TrimSpace(string(out))
	}
	for _, name := range []string{kubelet, "containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		if _, err := os.Stat(tl.path(name)); err != nil {
			t.Fatalf("%v: run make e2e-deps, or test/e2e/deps.sh with the flags in its head", err)
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
	cmd.Dir = product.Repository("test", "e2e")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // static: its image contains no other file
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tool: %v\n%s", err, text)
	}
}
