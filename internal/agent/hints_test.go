package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An error names the flag, and has a hint that also names the value of the chart.
func TestErrorsHaveHints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, empty := filepath.Join(dir, "file"), filepath.Join(dir, "empty")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Mkdir(empty, 0o700))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	good := Paths{RunDir: ownDir(t), KubeletDir: empty}
	prepare := func(change func(*Paths)) func() error {
		p := good
		change(&p)
		return func() error { return Options{Paths: p, InPod: true}.prepare() }
	}
	for _, tc := range []struct {
		name, flag string
		fail       func() error
		want       []string // what the hint names, for a host and for a pod
	}{
		{"no kubelet directory", "--kubelet-dir: ", prepare(func(p *Paths) { p.KubeletDir += "/none" }), []string{"microk8s", "paths.devicePlugins"}},
		{"run directory of the pod's own", "--run-dir: ", prepare(func(*Paths) {}), []string{"paths.run"}},
		{"run directory", "--run-dir: ", prepare(func(p *Paths) { p.RunDir = file + "/x" }), []string{"not a directory", "paths.run"}},
		{"ConfigMap without a key", "--config: ", func() error {
			_, _, err := newReader(Options{Config: empty}, false)
			return err
		}, []string{"generic-dp check", "existingConfigMap"}},
		{"port", "--listen: ", func() error {
			return (&Agent{options: Options{Listen: taken.Addr().String()}}).listen()
		}, []string{"generic-dp status", "listen.port"}},
	} {
		err := tc.fail()
		if err == nil || !strings.HasPrefix(err.Error(), tc.flag) || strings.Count(err.Error(), "\n  hint: ") != 1 {
			t.Errorf("%s: %v, want %s and a hint", tc.name, err, tc.flag)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tc.name, err, want)
			}
		}
	}
	// Outside a pod, the kubelet sees the same directories.
	if err := (Options{Paths: good}).prepare(); err != nil {
		t.Error(err)
	}
}

// ownDir is a directory that does not look like the host's: it is on the root mount,
// which temporary directories may not be.
func ownDir(t *testing.T) string {
	t.Helper()
	var root, own unix.Stat_t
	must(t, unix.Stat("/", &root))
	for _, base := range []string{".", os.TempDir(), "/var/tmp"} {
		if err := unix.Stat(base, &own); err != nil || own.Dev != root.Dev {
			continue
		}
		dir, err := os.MkdirTemp(base, ".run-*")
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Skip("no directory on the root mount")
	return ""
}
