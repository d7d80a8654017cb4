package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

func TestWriteLeavesTheSameContent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "one", 0o600)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+TempSuffix, nil, 0o600); err != nil { // of a crash
		t.Fatal(err)
	}
	write(t, path, "one", 0o600)
	checkFile(t, path, "one", 0o600)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(path+TempSuffix, "full"), 0o700); err != nil { // nothing can be written
		t.Fatal(err)
	}
	write(t, path, "one", 0o600)
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
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
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

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("file"), "text", 0o600)
	write(t, in("empty"), "", 0o600)
	large, err := os.Create(in("large"))
	if err == nil {
		err = large.Truncate(3 << 30)
	}
	for link, to := range map[string]string{"link": "file", "zero": "/dev/zero", "messages": "/proc/kmsg"} {
		err = errors.Join(err, os.Symlink(to, in(link)))
	}
	if err := errors.Join(err, unix.Mkfifo(in("fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"file": "text", "link": "text", "empty": "", "messages": "",
		"large": "3221225472 bytes exceed the limit of 4", "fifo": "not a regular file", "zero": "not a regular file", ".": "not a regular file",
		"missing": "no such file",
	} {
		got, err := Read(in(name), 4)
		if err != nil {
			got = []byte(err.Error())
		}
		if (err != nil || string(got) != want) && (err == nil || !strings.Contains(string(got), want) || !strings.Contains(string(got), dir)) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if _, err := Read(in("file"), 3); err == nil {
		t.Error("a file of 4 bytes was read where 3 are permitted")
	}
}

// Something else in the file's place is replaced, and read by nobody.
func TestWriteReplacesAnything(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"endless":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"large":     func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 3<<30)) },
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "text", 0o600)
		checkFile(t, path, "text", 0o600)
	}
	if err := Write(filepath.Join(t.TempDir(), "file"), make([]byte, MaxSize+1), 0o600); err == nil || !strings.Contains(err.Error(), "8388609 bytes exceed the limit of 8388608") {
		t.Errorf("a file that is too large: %v", err)
	}
}
