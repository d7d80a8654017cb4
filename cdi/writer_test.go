package cdi_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

func newWriter(t *testing.T) *cdi.Writer {
	t.Helper()
	return &cdi.Writer{Dir: filepath.Join(t.TempDir(), "run", "cdi")}
}

func gpu(id, host string) device.Offer {
	o := device.Offer{ID: id, CDI: true, Nodes: []device.OfferedNode{ttyNode(host, "")}}
	return o
}

func build(t *testing.T, kind string, offers ...device.Offer) *specs.Spec {
	t.Helper()
	spec, left := (&cdi.Resource{Name: kind, Host: fakeHost{}}).Build(offers)
	if len(left) > 0 {
		t.Fatal(left)
	}
	return spec
}

// inject resolves names like a container runtime.
func inject(t *testing.T, dir string, names ...string) (*oci.Spec, error) {
	t.Helper()
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(dir), cdiapi.WithAutoRefresh(false))
	must(t, err)
	for file, errs := range cache.GetErrors() {
		t.Errorf("%s: %v", file, errs)
	}
	spec := &oci.Spec{}
	_, err = cache.InjectDevices(spec, names...)
	return spec, err
}

// resolved lists the resolved names of kinds: host device numbers by qualified name.
func resolved(t *testing.T, dir string, names ...string) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for _, name := range names {
		if spec, err := inject(t, dir, name); err == nil {
			found[name] = spec.Linux.Devices[0].Minor
		}
	}
	return found
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSync(t *testing.T) {
	t.Parallel()
	const a, b = "example.com/a", "example.com/b"
	names := []string{a + "=x", a + "=y", b + "=x", b + "=z"}
	held := func(kind, id string, hostPaths []string) bool {
		return kind == b && id == "z" && slices.Equal(hostPaths, []string{"/dev/ttyUSB2"})
	}
	for _, tc := range []struct {
		name         string
		before, want []*specs.Spec
		keep         func(kind, id string, hostPaths []string) bool
		resolves     map[string]int64
		files        []string
	}{
		{
			name:     "first",
			want:     []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB0")), build(t, b, gpu("z", "/dev/ttyUSB1"))},
			resolves: map[string]int64{a + "=x": 0, b + "=z": 1},
			files:    []string{"generic-dp_example.com_a.json", "generic-dp_example.com_b.json"},
		},
		{
			name:     "node moved",
			before:   []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB0"))},
			want:     []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB1"))},
			resolves: map[string]int64{a + "=x": 1},
			files:    []string{"generic-dp_example.com_a.json"},
		},
		{
			name:     "device gone",
			before:   []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB0"), gpu("y", "/dev/ttyUSB1"))},
			want:     []*specs.Spec{build(t, a, gpu("y", "/dev/ttyUSB1"))},
			resolves: map[string]int64{a + "=y": 1},
			files:    []string{"generic-dp_example.com_a.json"},
		},
		{
			name:   "last device gone",
			before: []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB0"))},
		},
		{
			name:     "held though its resource is gone",
			before:   []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB0")), build(t, b, gpu("x", "/dev/ttyUSB1"), gpu("z", "/dev/ttyUSB2"))},
			want:     []*specs.Spec{build(t, a, gpu("x", "/dev/ttyUSB0"))},
			keep:     held,
			resolves: map[string]int64{a + "=x": 0, b + "=z": 2},
			files:    []string{"generic-dp_example.com_a.json", "generic-dp_example.com_b.json"},
		},
		{
			name:     "held though the resource no longer selects it",
			before:   []*specs.Spec{build(t, b, gpu("z", "/dev/ttyUSB2"))},
			want:     []*specs.Spec{build(t, b, gpu("x", "/dev/ttyUSB1"))},
			keep:     held,
			resolves: map[string]int64{b + "=x": 1, b + "=z": 2},
			files:    []string{"generic-dp_example.com_b.json"},
		},
		{
			name:     "what is configured goes before what was kept",
			before:   []*specs.Spec{build(t, b, gpu("z", "/dev/ttyUSB2"))},
			want:     []*specs.Spec{build(t, b, gpu("z", "/dev/ttyUSB3"))},
			keep:     held,
			resolves: map[string]int64{b + "=z": 3},
			files:    []string{"generic-dp_example.com_b.json"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWriter(t)
			must(t, apply(w, tc.before, nil))
			must(t, apply(w, tc.want, tc.keep))
			if tc.resolves == nil {
				tc.resolves = map[string]int64{}
			}
			equal(t, "names", tc.resolves, resolved(t, w.Dir, names...))
			equal(t, "files", tc.files, files(t, w.Dir))
		})
	}
}

// Foreign files always stay; files with own names from a crash or of others are
// removed.
func TestOnlyOurFiles(t *testing.T) {
	t.Parallel()
	foreign := []string{"example.com-a.yaml", "generic-dp.json", "spec.123.tmp"}
	prepare := func(t *testing.T) *cdi.Writer {
		w := newWriter(t)
		must(t, apply(w, []*specs.Spec{build(t, "example.com/a", gpu("x", "/dev/ttyUSB0")), build(t, "example.com/b", gpu("z", "/dev/ttyUSB1"))}, nil))
		for _, name := range append(foreign, "generic-dp_broken.json", "generic-dp_1.json.tmp") {
			must(t, os.WriteFile(filepath.Join(w.Dir, name), []byte("{"), 0o600))
		}
		return w
	}
	for _, tc := range []struct {
		name string
		do   func(*cdi.Writer) error
		want []string
	}{
		{"clean", func(w *cdi.Writer) error { _, err := w.Clean(); return err }, foreign},
		{"sync", func(w *cdi.Writer) error { return apply(w, nil, nil) }, foreign},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t)
			must(t, tc.do(w))
			have := map[string]bool{}
			for _, name := range files(t, w.Dir) {
				have[name] = true
			}
			want := map[string]bool{}
			for _, name := range tc.want {
				want[name] = true
			}
			equal(t, "files", want, have)
		})
	}
	removed, err := newWriter(t).Clean()
	if must(t, err); len(removed) > 0 {
		t.Errorf("removed %q, though nothing was there", removed)
	}
}

// Several installations may share a directory.
func TestInstallationsKeepForeignFiles(t *testing.T) {
	t.Parallel()
	first := newWriter(t)
	second, third := &cdi.Writer{Dir: first.Dir, Owner: "/run/second"}, &cdi.Writer{Dir: first.Dir, Owner: "/run/third"}
	all := map[*cdi.Writer]string{first: "example.com/a", second: "example.com/b", third: "example.com/c"}
	for w, kind := range all {
		must(t, apply(w, []*specs.Spec{build(t, kind, gpu("x", "/dev/ttyUSB0"))}, nil))
		// Left by a crash.
		must(t, os.WriteFile(filepath.Join(w.Dir, w.FileName("1")+".tmp"), nil, 0o600))
	}
	left := 6
	for _, w := range []*cdi.Writer{first, second, third} {
		path := filepath.Join(w.Dir, w.FileName(all[w]))
		must(t, os.Remove(path))
		must(t, apply(w, []*specs.Spec{build(t, all[w], gpu("x", "/dev/ttyUSB0"))}, nil))
		if left--; len(files(t, first.Dir)) != left {
			t.Errorf("after a sync of %q there are %q", w.Owner, files(t, first.Dir))
		}
		removed, err := w.Clean()
		must(t, err)
		if diff := cmp.Diff([]string{path}, removed); diff != "" {
			t.Errorf("cleaned of %q (-want +got):\n%s", w.Owner, diff)
		}
		if left--; len(files(t, first.Dir)) != left {
			t.Errorf("after a clean of %q there are %q", w.Owner, files(t, first.Dir))
		}
	}
}

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(blocked, nil, 0o600))
	w := &cdi.Writer{Dir: filepath.Join(blocked, "cdi")}
	err := apply(w, []*specs.Spec{build(t, "example.com/a", gpu("x", "/dev/ttyUSB0"))}, nil)
	if err == nil || !strings.Contains(err.Error(), "--cdi-dir") || !strings.Contains(err.Error(), w.Dir) {
		t.Errorf("error = %v, want --cdi-dir and the path in it", err)
	}

	// A kind that fails does not affect the others.
	w = newWriter(t)
	must(t, os.MkdirAll(filepath.Join(w.Dir, w.FileName("example.com/a"), "x"), 0o755))
	err = apply(w, []*specs.Spec{build(t, "example.com/a", gpu("x", "/dev/ttyUSB0")), build(t, "example.com/b", gpu("z", "/dev/ttyUSB1"))}, nil)
	if err == nil || !strings.Contains(err.Error(), w.FileName("example.com/a")) {
		t.Errorf("error = %v, want the file in it", err)
	}
	equal(t, "names", map[string]int64{"example.com/b=z": 1}, resolved(t, w.Dir, "example.com/b=z"))
}

// apply changes the directory as a pass of the program does.
func apply(w *cdi.Writer, want []*specs.Spec, keep func(kind, device string, hostPaths []string) bool) error {
	plan, err := w.Plan(want, keep)
	return errors.Join(err, plan.Remove(), plan.Make())
}

func TestSyncWritesNothingWhenRight(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	spec := build(t, "example.com/a", gpu("x", "/dev/ttyUSB0"))
	must(t, apply(w, []*specs.Spec{spec}, nil))
	path := filepath.Join(w.Dir, w.FileName("example.com/a"))
	before, err := os.Stat(path)
	must(t, err)
	must(t, apply(w, []*specs.Spec{spec}, nil))
	after, err := os.Stat(path)
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("a file that did not change was written again")
	}
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
