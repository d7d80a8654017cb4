package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

// A program makes its directory first, and its socket later. The event of the socket is in the new
// directory.
func TestSocketInANewDirectory(t *testing.T) {
	t.Parallel()
	// The directory for temporary files may be /dev/shm, where a glob selects device nodes.
	dir, err := os.MkdirTemp("/var/tmp", "generic-dp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	top := filepath.Join(dir, "vendor")
	text := "domain = \"example.com\"\n[[resource]]\nname = \"api\"\nmatch = { glob = \"" + top + "/*/api.sock\" }\n"
	n := newNode(t, text)
	n.options.Allow = config.Allow{Mounts: []string{top}}
	// ready makes a directory with its socket at once.
	ready := func(name string) {
		t.Helper()
		made := filepath.Join(dir, name)
		err := errors.Join(
			os.Mkdir(made, 0o755),
			os.WriteFile(filepath.Join(made, "api.sock"), nil, 0o644),
			os.Rename(made, filepath.Join(top, name)),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	listed := func(count int) func() bool {
		return func() bool { return n.kubelet.Count("example.com/api").Allocatable == count }
	}
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	var c clock // it stands still, so that nothing but an event causes a scan
	n.serveBy(&c)
	if err := os.Mkdir(filepath.Join(top, "late"), 0o755); err != nil {
		t.Fatal(err)
	}
	ready("first")
	n.until("the first socket", listed(1))
	ready("second")
	n.until("the second socket", listed(2)) // a scan has seen the directory late by now
	if err := os.WriteFile(filepath.Join(top, "late", "api.sock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.until("the socket that is made later", listed(3))
}
