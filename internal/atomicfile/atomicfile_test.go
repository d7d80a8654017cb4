package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// checkFile checks content and mode of a file, and that no other file is next to it.
func checkFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content {
		t.Errorf("%q, %v; want %q", got, err, content)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != mode {
		t.Errorf("mode %v, %v; want %v", info.Mode(), err, mode)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("%v; want one file", entries)
	}
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := Write(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestWriteReplaces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "one", 0o600)
	checkFile(t, path, "one", 0o600)
	write(t, path, "two", 0o666) // more than the umask permits
	checkFile(t, path, "two", 0o666)
}

func TestWriteLeavesTheSameContent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "one", 0o600)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "one", 0o600)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced: %v", err)
	}
}

func TestWriteAfterACrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path+TempSuffix, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	write(t, path, "whole", 0o600)
	checkFile(t, path, "whole", 0o600)
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.Mkdir(path, 0o700); err != nil { // no file can replace it
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("left %v", entries)
	}
	if err := Write(filepath.Join(dir, "missing", "file"), nil, 0o600); err == nil {
		t.Error("no error without a directory")
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "x", 0o600)
	if err := os.WriteFile(path+TempSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time both are missing
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left %v", entries)
	}
}
