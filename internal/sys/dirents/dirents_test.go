package dirents_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/dirents"
)

func read(dir string) (list []dirents.Entry, err error) {
	err = dirents.Read(dir, func(e dirents.Entry) { list = append(list, e) })
	return list, err
}

// The result equals that of os.ReadDir and lstat, for more entries than one system call
// returns, with names of all lengths.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 1000 {
		name := fmt.Sprintf("%d%s", i, strings.Repeat("x", i%250))
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Mkdir(dir+"/directory", 0o700), os.Symlink("nowhere", dir+"/link"), unix.Mkfifo(dir+"/fifo", 0o600), os.Mkdir(dir+"/...", 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{dir, "/sys/class"} {
		listed, err := os.ReadDir(dir)
		if err != nil {
			t.Logf("not here: %v", err)
			continue
		}
		var want []dirents.Entry
		for _, e := range listed {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, e.Name()), &st); err != nil {
				t.Fatal(err)
			}
			want = append(want, dirents.Entry{Name: e.Name(), Ino: st.Ino, Type: e.Type()})
		}
		got, err := read(dir)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b dirents.Entry) int { return cmp.Compare(a.Name, b.Name) })
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", dir, diff)
		}
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{file: unix.ENOTDIR, file + "x": fs.ErrNotExist} {
		list, err := read(path)
		if pe, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, want) || pe.Path != path || list != nil {
			t.Errorf("%s: %v, %v; want %v", path, list, err, want)
		}
	}
}
