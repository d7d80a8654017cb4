package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An error names the flag, and has a hint; in a pod that names the part of the manifest
// and the value of the chart.
func TestErrorsHaveHints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "file"), filepath.Join(dir, "empty")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := Paths{RunDir: ownDir(t), KubeletDir: empty}
	with := func(change func(*Paths)) func(bool) error {
		p := good
		change(&p)
		return func(inPod bool) error { return Options{Paths: p, InPod: inPod}.prepare() }
	}
	for _, tc := range []struct {
		name, flag string
		fail       func(inPod bool) error
		pod, host  string // what the error has; host is empty where there is none
	}{
		{"no kubelet directory", "--kubelet-dir: ", with(func(p *Paths) { p.KubeletDir += "/none" }), "paths.devicePlugins", ""},
		{"run directory of the pod's own", "--run-dir: ", with(func(*Paths) {}), "paths.run", ""},
		{"run directory", "--run-dir: ", with(func(p *Paths) { p.RunDir = file + "/x" }), "paths.run", "not a directory"},
		{"ConfigMap without a key", "--config: ", func(inPod bool) error {
			_, _, err := newReader(Options{Config: empty, InPod: inPod}, false)
			return err
		}, "existingConfigMap", "generic-dp check"},
		{"port", "--listen: ", func(inPod bool) error {
			return (&Agent{options: Options{Listen: taken.Addr().String(), InPod: inPod}}).listen()
		}, "listen.port", "generic-dp status"},
	} {
		for inPod, want := range map[bool]string{true: tc.pod, false: tc.host} {
			switch err := tc.fail(inPod); {
			case want == "" && err != nil:
				t.Errorf("%s, in a pod %t: %v, want no error", tc.name, inPod, err)
			case want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.flag) || !strings.Contains(err.Error(), want)):
				t.Errorf("%s, in a pod %t: %v, want %s with %q", tc.name, inPod, err, tc.flag, want)
			case want != "" && inPod && !strings.Contains(err.Error(), "\n  hint: "):
				t.Errorf("%s: %v, want a hint", tc.name, err)
			}
		}
	}
}

// ownDir is a directory that does not look like the host's: it is on the root mount,
// which temporary directories may not be.
func ownDir(t *testing.T) string {
	t.Helper()
	var root, own unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{".", os.TempDir(), "/var/tmp"} {
		if err := unix.Stat(base, &own); err != nil || own.Dev != root.Dev {
			continue
		}
		dir, err := os.MkdirTemp(base, ".run-*")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Skip("no directory on the root mount")
	return ""
}
