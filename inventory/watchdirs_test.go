package inventory

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// realWatcher runs on real inotify, with /dev in a directory of the test.
func realWatcher(t *testing.T) (w *Watcher, dev string) {
	t.Helper()
	dev = t.TempDir()
	w = NewWatcher(WatchOptions{Dev: dev})
	w.openKernel = func() (kernelEvents, error) { return newFakeKernel(), nil }
	return w, dev
}

// await takes batches until one says Names.
func await(t *testing.T, w *Watcher, what string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case <-w.Changes():
			if w.Take().Names {
				return
			}
		case <-deadline:
			t.Fatalf("%s: no event in 10 s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAwaitedDirectoryOutsideDev(t *testing.T) {
	t.Parallel()
	w, _ := realWatcher(t)
	// Temporary files and this directory may be below /dev, in /dev/shm.
	run, err := os.MkdirTemp(".", ".run-*")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(run)) })
	run = "/proc/self/cwd/" + filepath.Base(run)
	w.SetDirs([]string{run + "/a/b/c"})
	start(t, w)
	// Other entries are ignored: otherwise the first batch would precede the directory.
	must(t, os.WriteFile(run+"/neighbour", nil, 0o644))
	must(t, os.MkdirAll(run+"/a/b/c", 0o755))
	await(t, w, "directory")
	must(t, os.WriteFile(run+"/a/b/c/socket", nil, 0o644))
	await(t, w, "file")
}
