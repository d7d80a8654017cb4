package kubelettest

import (
	"os"
	"testing"
)

// TempDir makes a directory that is removed after the test. Its path is shorter than
// those of t.TempDir: a socket's has at most 107 bytes (unix(7)).
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gdp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
