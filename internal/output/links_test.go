package output_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/output"
)

const (
	dongle = "usb:10c4:ea60:A1B2C3"
	camera = "usb:046d:0825:port:0000:00:14.0:1.2"
	tty    = "if00:ttyUSB"
)

func newTree(t *testing.T) output.Links {
	t.Helper()
	return output.Links{Dir: filepath.Join(t.TempDir(), "run", "links")}
}

// readTree reads the whole tree: the target of each link, and other files.
func readTree(t *testing.T, tree output.Links) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(tree.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == tree.Dir {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, _ := filepath.Rel(tree.Dir, path)
		switch target, err := os.Readlink(path); {
		case err == nil:
			found[rel] = target
		case !d.IsDir():
			found[rel] = "file"
		case strings.Contains(rel, "/"):
			found[rel] = "directory"
		}
		return nil
	})
	must(t, err)
	return found
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, tree output.Links)
		before  []output.Link
		want    []output.Link
		keep    func(output.Link) bool
		tree    map[string]string
		wantErr string
	}{
		{
			name: "first",
			want: []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {camera, "if00:video", "/dev/video0"}, {camera, "if00:video.1", "/dev/video1"}},
			tree: map[string]string{dongle + "/" + tty: "/dev/ttyUSB0", camera + "/if00:video": "/dev/video0", camera + "/if00:video.1": "/dev/video1"},
		},
		{
			name:   "nodes swapped",
			before: []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {camera, tty, "/dev/ttyUSB1"}},
			want:   []output.Link{{dongle, tty, "/dev/ttyUSB1"}, {camera, tty, "/dev/ttyUSB0"}},
			tree:   map[string]string{dongle + "/" + tty: "/dev/ttyUSB1", camera + "/" + tty: "/dev/ttyUSB0"},
		},
		{
			name:   "device gone",
			before: []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {camera, "if00:video", "/dev/video0"}},
			want:   []output.Link{{camera, "if00:video", "/dev/video0"}},
			tree:   map[string]string{camera + "/if00:video": "/dev/video0"},
		},
		{
			name:   "kept though not wanted",
			before: []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {camera, "if00:video", "/dev/video0"}, {camera, "if00:video.1", "/dev/video1"}},
			want:   []output.Link{{camera, "if00:video", "/dev/video0"}},
			keep:   func(l output.Link) bool { return l.Target != "/dev/video1" },
			tree:   map[string]string{dongle + "/" + tty: "/dev/ttyUSB0", camera + "/if00:video": "/dev/video0"},
		},
		{
			name:   "wanted elsewhere is not kept",
			before: []output.Link{{dongle, tty, "/dev/ttyUSB0"}},
			want:   []output.Link{{dongle, tty, "/dev/ttyUSB1"}},
			keep:   func(output.Link) bool { return true },
			tree:   map[string]string{dongle + "/" + tty: "/dev/ttyUSB1"},
		},
		{
			name: "left over from a crash",
			prepare: func(t *testing.T, tree output.Links) {
				dir := filepath.Join(tree.Dir, dongle)
				must(t, os.MkdirAll(dir, 0o755))
				must(t, os.Symlink("/dev/ttyUSB7", filepath.Join(dir, ".new-"+tty)))
				must(t, os.Symlink("/dev/null", filepath.Join(tree.Dir, "stray")))
			},
			want: []output.Link{{dongle, tty, "/dev/ttyUSB0"}},
			keep: func(output.Link) bool { return true },
			tree: map[string]string{dongle + "/" + tty: "/dev/ttyUSB0"},
		},
		{
			name: "something else in the place of a link",
			prepare: func(t *testing.T, tree output.Links) {
				must(t, os.MkdirAll(filepath.Join(tree.Dir, dongle, tty, "x"), 0o755))
				must(t, os.WriteFile(filepath.Join(tree.Dir, camera), nil, 0o600))
			},
			want: []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {camera, "if00:video", "/dev/video0"}},
			tree: map[string]string{dongle + "/" + tty: "/dev/ttyUSB0", camera + "/if00:video": "/dev/video0"},
		},
		{
			name:    "two targets: neither, and the others are made",
			before:  []output.Link{{dongle, tty, "/dev/ttyUSB0"}},
			want:    []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {dongle, tty, "/dev/ttyUSB1"}, {camera, "if00:video", "/dev/video0"}},
			tree:    map[string]string{camera + "/if00:video": "/dev/video0"},
			wantErr: `--run-dir: device "usb:10c4:ea60:A1B2C3" cannot have a link "if00:ttyUSB" to "/dev/ttyUSB1"`,
		},
		{
			name:    "slash in an ID",
			want:    []output.Link{{"../../etc", tty, "/dev/ttyUSB0"}, {dongle, tty, "/dev/ttyUSB0"}},
			tree:    map[string]string{dongle + "/" + tty: "/dev/ttyUSB0"},
			wantErr: `--run-dir: device "../../etc" cannot have a link`,
		},
		{
			name:    "dots as a key",
			want:    []output.Link{{dongle, "..", "/dev/ttyUSB0"}},
			tree:    map[string]string{},
			wantErr: `cannot have a link ".."`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tree := newTree(t)
			if tc.prepare != nil {
				tc.prepare(t, tree)
			}
			if tc.before != nil {
				must(t, apply(tree, tc.before, nil))
			}
			err := apply(tree, tc.want, tc.keep)
			if tc.wantErr == "" {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error = %v, want %q in it", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.tree, readTree(t, tree)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

// A correct tree is not written: read-only directories do no harm, and modification
// times stay.
func TestRightLinksStay(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	want := []output.Link{{dongle, tty, "/dev/ttyUSB0"}, {camera, "if00:video", "/dev/video0"}}
	must(t, apply(tree, want, nil))
	long := time.Unix(1_000_000_000, 0)
	dirs := []string{tree.Dir, filepath.Join(tree.Dir, dongle), filepath.Join(tree.Dir, camera)}
	for _, dir := range dirs {
		must(t, os.Chtimes(dir, long, long))
	}
	must(t, apply(tree, want, nil))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		must(t, err)
		if !info.ModTime().Equal(long) {
			t.Errorf("%s was written to", dir)
		}
	}
}

// A directory that can't be read, such as without a free file descriptor, has links that containers need.
func TestUnreadableLinks(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	must(t, apply(tree, []output.Link{{dongle, tty, "/dev/ttyUSB0"}}, nil))
	must(t, os.Chmod(filepath.Join(tree.Dir, dongle), 0))
	top := filepath.Dir(filepath.Dir(filepath.Dir(tree.Dir)))
	must(t, os.Chmod(top, 0o755))
	planned := make(chan struct{})
	go func() {
		defer close(planned)
		runtime.LockOSThread()   // the thread ends with the goroutine
		_ = unix.Setfsuid(65534) // root may read everything
		plan, err := tree.Plan(nil, func(output.Link) bool { return true })
		if err == nil || len(plan.StaleTrees) > 0 {
			t.Errorf("stale are %q, with the error %v; want none, and an error", plan.StaleTrees, err)
		}
	}()
	<-planned
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apply changes the tree as a pass of the program does.
func apply(tree output.Links, want []output.Link, keep func(output.Link) bool) error {
	plan, err := tree.Plan(want, keep)
	return errors.Join(err, plan.Remove(), plan.Make())
}
