package kubelettest

import (
	"os"
	"testing"
)

// TempDir makes a directory that is removed after the test. Unlike t.TempDir's, its path
// is short enough for sockets, whose paths have at most 107 bytes (unix(7)).
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gdp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.RemoveAll(dir)
	})
	return dir
}
