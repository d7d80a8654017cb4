package cdi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// specFile is a spec with one node for each of the named devices.
func specFile(kind, node string, names ...string) string {
	text := "cdiVersion: \"0.5.0\"\nkind: " + kind + "\ndevices:\n"
	for _, n := range names {
		text += "- name: \"" + n + "\"\n  containerEdits: {deviceNodes: [{path: " + node + n + "}]}\n"
	}
	return text
}

// hostDirs makes the two directories of a host with files by their paths in
// them: "etc/x.yaml", "run/x.json".
func hostDirs(t *testing.T, content map[string]string) (etc, run string) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"etc", "run"} {
		must(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	for path, text := range content {
		must(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
	return filepath.Join(root, "etc"), filepath.Join(root, "run")
}

// foreign reads the specs in directories. In a bubble no read is late, however busy the machine is.
func foreign(t *testing.T, dirs ...string) (read *cdi.Foreign) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { read = cdi.NewForeignSpecs("", dirs...).Read() })
	return read
}

func TestForeignSpecs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		files   map[string]string
		want    []device.CDIDevice
		wantErr []string
	}{
		{name: "none"},
		{
			name: "YAML and JSON, by name",
			files: map[string]string{
				"run/nvidia.yaml": specFile("nvidia.com/gpu", "/dev/nvidia", "1", "0"),
				"etc/fpga.json":   `{"cdiVersion": "0.5.0", "kind": "intel.com/fpga", "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/port", "hostPath": "/dev/intel-fpga-port.0"}], "env": ["X=1"]}}]}`,
				"run/readme.txt":  "nothing",
			},
			want: []device.CDIDevice{
				{Name: "intel.com/fpga=a", Nodes: []device.CDINode{{Path: "/dev/intel-fpga-port.0"}}},
				{Name: "nvidia.com/gpu=0", Nodes: []device.CDINode{{Path: "/dev/nvidia0"}}},
				{Name: "nvidia.com/gpu=1", Nodes: []device.CDINode{{Path: "/dev/nvidia1"}}},
			},
		},
		{
			name: "numbers that the spec says, and nodes of all its devices",
			files: map[string]string{"etc/x.yaml": `cdiVersion: "0.5.0"
kind: example.org/disk
containerEdits: {deviceNodes: [{path: /dev/all}]}
devices:
- name: a
  containerEdits: {deviceNodes: [{path: /dev/x, type: b, major: 8, minor: 16}, {path: /dev/y, type: c, major: 1, minor: 1}, {path: /dev/z, type: c}]}
`},
			want: []device.CDIDevice{{Name: "example.org/disk=a", Nodes: []device.CDINode{
				{Path: "/dev/x", Type: device.BlockNode, Major: 8, Minor: 16}, {Path: "/dev/y", Type: device.CharNode, Major: 1, Minor: 1}, {Path: "/dev/z"}, {Path: "/dev/all", Common: true}}}},
		},
		{
			name: "our own are none of the host's",
			files: map[string]string{
				"run/generic-dp_example.com_a.json":           specFile("example.com/a", "/dev/a", "0"),
				"run/generic-dp_-0123abcd-example.com_b.json": specFile("example.com/b", "/dev/b", "0"),
			},
		},
		{
			name: "the later directory wins",
			files: map[string]string{
				"etc/nvidia.yaml": specFile("nvidia.com/gpu", "/dev/old", "0", "1"),
				"run/nvidia.yaml": specFile("nvidia.com/gpu", "/dev/new", "0"),
			},
			want: []device.CDIDevice{{Name: "nvidia.com/gpu=0", Nodes: []device.CDINode{{Path: "/dev/new0"}}}, {Name: "nvidia.com/gpu=1", Nodes: []device.CDINode{{Path: "/dev/old1"}}}},
		},
		{
			name: "two files of one directory",
			files: map[string]string{
				"etc/a.yaml": specFile("nvidia.com/gpu", "/dev/a", "0", "1"),
				"etc/b.yaml": specFile("nvidia.com/gpu", "/dev/b", "0"),
			},
			want:    []device.CDIDevice{{Name: "nvidia.com/gpu=1", Nodes: []device.CDINode{{Path: "/dev/a1"}}}},
			wantErr: []string{`CDI device "nvidia.com/gpu=0" is in "ETC/a.yaml" and in "ETC/b.yaml": container runtimes use neither`},
		},
		{
			name: "two files of one directory and one of a later one",
			files: map[string]string{
				"etc/a.yaml": specFile("nvidia.com/gpu", "/dev/a", "0"),
				"etc/b.yaml": specFile("nvidia.com/gpu", "/dev/b", "0"),
				"run/c.yaml": specFile("nvidia.com/gpu", "/dev/c", "0", "1"),
			},
			want:    []device.CDIDevice{{Name: "nvidia.com/gpu=1", Nodes: []device.CDINode{{Path: "/dev/c1"}}}},
			wantErr: []string{`CDI device "nvidia.com/gpu=0" is in "ETC/a.yaml" and in "ETC/b.yaml"`},
		},
		{
			name: "a broken file degrades itself",
			files: map[string]string{
				"etc/broken.yaml":  "kind: [a\n",
				"etc/empty.yaml":   "cdiVersion: 0.5.0\nkind: example.com/x\ndevices: []\n",
				"etc/unknown.yaml": "cdiVersion: 0.5.0\nkind: example.com/y\nvices: []\n",
				"etc/version.json": strings.Replace(specFile("example.com/z", "/dev/z", "0"), "0.5.0", "9.0.0", 1),
				"run/good.yaml":    specFile("nvidia.com/gpu", "/dev/nvidia", "0"),
			},
			want: []device.CDIDevice{{Name: "nvidia.com/gpu=0", Nodes: []device.CDINode{{Path: "/dev/nvidia0"}}}},
			wantErr: []string{
				`CDI spec "ETC/broken.yaml": yaml: `,
				`CDI spec "ETC/empty.yaml": invalid spec, no devices`,
				`CDI spec "ETC/unknown.yaml": yaml: `,
				`CDI spec "ETC/version.json": invalid version "9.0.0"`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			etc, run := hostDirs(t, tc.files)
			read := foreign(t, etc, run)
			got, errs := read.Devices, read.Problems
			equal(t, "devices", tc.want, got)
			if len(errs) != len(tc.wantErr) {
				t.Errorf("errors: %q, want %q", errs, tc.wantErr)
			}
			for i := range min(len(errs), len(tc.wantErr)) {
				if text := strings.ReplaceAll(errs[i].Error(), etc, "ETC"); !strings.HasPrefix(text, tc.wantErr[i]) {
					t.Errorf("error %q, want %q", text, tc.wantErr[i])
				}
			}
			// A runtime must agree.
			cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(etc, run), cdiapi.WithAutoRefresh(false))
			must(t, err)
			var listed []string
			for _, name := range cache.ListDevices() {
				if !strings.HasPrefix(name, "example.com/") {
					listed = append(listed, name)
				}
			}
			var names []string
			for _, d := range got {
				names = append(names, d.Name)
				if read.Check(d.Name) != nil {
					t.Errorf("%s is listed, but not there", d.Name)
				}
			}
			equal(t, "names", listed, names)
			if read.Check("nvidia.com/gpu=9") == nil {
				t.Error("finds a device that is in no spec")
			}
		})
	}
}

// A file can't keep the program from its work: the YAML library needs 17 s and 5 GiB for
// these 16 kB.
func TestSpecsThatAreTooMuchWork(t *testing.T) {
	t.Parallel()
	keys := ""
	for i := range 2000 {
		keys += fmt.Sprintf("k%d: x, ", i)
	}
	for text, want := range map[string]string{
		"{" + strings.Repeat("a:,", 5000) + "}":                             `line 1: key "a:" is there twice`,
		"kind: a.b/c\nannotations: {" + keys + "}\n":                        `line 2: key "k1000" is there twice, or is one of more than 1000`,
		"kind: a.b/c\n---\n{" + strings.Repeat("a:,", 5000) + "}":           "invalid version",
		"kind: &k a.b/c\nx: &x [*k]\ny: [" + strings.Repeat("*x,", 9) + "]": "not found in type",
	} {
		etc, run := hostDirs(t, map[string]string{"etc/x.yaml": text})
		if errs := foreign(t, etc, run).Problems; len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, errs, want)
		}
	}
}

// Only small regular files are opened, also under a name of this program: a FIFO would
// block, and the rest fill the memory.
func TestOnlySmallRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.json", "generic-dp_example.com_x.json"} {
		etc, run := hostDirs(t, map[string]string{"etc/good.yaml": specFile("example.com/good", "/dev/g", "0")})
		must(t, unix.Mkfifo(filepath.Join(run, name), 0o600))
		must(t, os.Symlink("/dev/zero", filepath.Join(run, "0"+name)))
		must(t, os.Symlink("/proc/kmsg", filepath.Join(run, "1"+name)))
		must(t, os.WriteFile(filepath.Join(run, "2"+name), nil, 0o600))
		must(t, os.WriteFile(filepath.Join(run, "3"+name), []byte("null"), 0o600))
		must(t, os.Truncate(filepath.Join(run, "2"+name), 3<<30))
		read := foreign(t, etc, run)
		if read.Check("example.com/good=0") != nil {
			t.Error("a good spec is missing")
		}
		if text := fmt.Sprint(read.Problems); !strings.Contains(text, "3221225472 bytes exceed the limit of 262144") || len(read.Problems) != 3 {
			t.Errorf("errors %v, want the errors of three files", read.Problems)
		}
		w := &cdi.Writer{Dir: run}
		if e := w.Edits("example.com/x=0"); e != nil {
			t.Errorf("edits %v", e)
		}
		must(t, apply(w, []*cdi.Spec{{Version: "0.5.0", Kind: "example.com/x", Devices: []specs.Device{{Name: "0", ContainerEdits: specs.ContainerEdits{Env: []string{"X=1"}}}}}}, nil))
		if w.Edits("example.com/x=0") == nil {
			t.Error("the FIFO was not replaced")
		}
	}
}

func TestForeignSpecsFollowTheFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		etc, run := hostDirs(t, nil)
		host := cdi.NewForeignSpecs("", etc, run, etc, filepath.Join(etc, "missing"))
		path := filepath.Join(run, "nvidia.yaml")
		write := func(text string) {
			t.Helper()
			temp := filepath.Join(run, "spec.tmp")
			must(t, os.WriteFile(temp, []byte(text), 0o600))
			must(t, os.Rename(temp, path))
		}
		for _, step := range []struct {
			name string
			do   func()
			want bool
		}{
			{"nothing", func() {}, false},
			{"a file", func() { write(specFile("nvidia.com/gpu", "/dev/nvidia", "0")) }, true},
			{"nothing more", func() {}, true},
			{"broken", func() { write("x") }, false},
			{"whole again", func() { write(specFile("nvidia.com/gpu", "/dev/nvidia", "0")) }, true},
			{"gone", func() { must(t, os.Remove(path)) }, false},
		} {
			step.do()
			if got := host.Read().Check("nvidia.com/gpu=0") == nil; got != step.want {
				t.Errorf("%s: %t, want %t", step.name, got, step.want)
			}
		}
		write(specFile("nvidia.com/gpu", "/dev/nvidia", "0"))
		if first := host.Read(); host.Read() != first {
			t.Error("another list, though nothing changed")
		}
	})
}

// Devices that a DRA driver, or another device plugin, made for pods of its own are no
// devices of the host.
func TestClaims(t *testing.T) {
	t.Parallel()
	etc, run := hostDirs(t, map[string]string{
		"run/k8s.gpu.example.com-gpu_2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6c.yaml":          specFile("k8s.gpu.example.com/gpu", "/dev/x", "2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6c-gpu-0"),
		"run/example.com-device_2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6d.yaml":               specFile("example.com/device", "/dev/y", "plain"),
		"run/gpu.example.com_metadata_2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6c_request.json": specFile("gpu.example.com/metadata", "/dev/z", "one"),
		"run/intel.com-gpu.yaml": specFile("intel.com/gpu", "/dev/w", "0000-00-02-0", "claim-2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6c-a"),
		"run/nvidia.yaml":        specFile("nvidia.com/gpu", "/dev/nvidia", "GPU-2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6c"),
	})
	read := foreign(t, etc, run)
	var got []string
	for _, d := range read.Devices {
		got = append(got, d.Name)
	}
	if diff := cmp.Diff([]string{"intel.com/gpu=0000-00-02-0", "nvidia.com/gpu=GPU-2f5a1c3e-52a4-4d5a-9b0c-3f1d2e4a5b6c"}, got); diff != "" || read.Problems != nil {
		t.Error(diff, read.Problems)
	}
}

// While a directory hangs, one caller waits, what was read before stays, and another Read is asked for once.
func TestForeignSpecsThatHang(t *testing.T) {
	t.Parallel()
	etc, run := hostDirs(t, map[string]string{"etc/a.yaml": specFile("vendor.com/a", "/dev/a", "0")})
	synctest.Test(t, func(t *testing.T) {
		const patience = 500 * time.Millisecond
		late, hangs := 0, make(chan struct{})
		s := cdi.NewForeignSpecs("", etc, run)
		s.Late = func() { late++ }
		s.SetReadDir(func(dir string) ([]os.DirEntry, error) {
			if dir == run {
				<-hangs
			}
			return os.ReadDir(dir)
		})
		read := func(wantTime time.Duration, wantKinds int, hasProblem bool) {
			t.Helper()
			began := time.Now()
			f := s.Read()
			if took := time.Since(began); took != wantTime || len(f.Kinds) != wantKinds || (len(f.Problems) > 0) != hasProblem {
				t.Errorf("after %v: %v, problems %v; want %d kinds after %v", took, f.Kinds, f.Problems, wantKinds, wantTime)
			}
			if err := f.Check("vendor.com/a=0"); wantKinds == 0 && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q does not answer", run))) {
				t.Errorf("Check: %v", err)
			}
		}
		answer := func(wantLate int) {
			t.Helper()
			close(hangs)
			synctest.Wait()
			if late != wantLate {
				t.Errorf("asked for %d reads, want %d", late, wantLate)
			}
			late = 0
		}
		read(patience, 0, true)
		read(0, 0, true)
		answer(1)
		hangs = make(chan struct{})
		read(patience, 1, true)
		answer(0)
		read(0, 1, false)
		hangs = make(chan struct{})
		must(t, os.WriteFile(filepath.Join(etc, "b.yaml"), []byte(specFile("vendor.com/b", "/dev/b", "0")), 0o600))
		read(patience, 1, true)
		answer(1)
		read(0, 2, false)
	})
}

// A Read finds what changed before it, whatever else reads.
func TestForeignSpecsAmongReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		etc, _ := hostDirs(t, nil)
		s := cdi.NewForeignSpecs("", etc)
		ended := make(chan struct{})
		var others sync.WaitGroup
		for range 4 {
			others.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						s.Read()
					}
				}
			})
		}
		for i := range 300 {
			path := filepath.Join(etc, "a.json")
			if i%2 == 0 {
				must(t, os.WriteFile(path, nil, 0o600))
			} else {
				must(t, os.Remove(path))
			}
			if got := len(s.Read().Problems) > 0; got != (i%2 == 0) {
				t.Errorf("change %d is not found", i)
			}
		}
		close(ended)
		others.Wait()
	})
}
