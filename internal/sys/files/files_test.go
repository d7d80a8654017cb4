package files_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree lists the paths below dir with their contents or targets.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		switch {
		case entry.IsDir():
			name += "/"
		case entry.Type() == os.ModeSymlink:
			target, err := os.Readlink(path)
			must(t, err)
			name += " -> " + target
		default:
			text, err := os.ReadFile(path)
			must(t, err)
			name += " = " + string(text)
		}
		found = append(found, name)
		return nil
	})
	must(t, err)
	return found
}

func TestRemoveComesBeforeMake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("stale/deep"), 0o755))
	must(t, os.WriteFile(at("stale.json.tmp"), []byte("crash"), 0o600))
	must(t, os.WriteFile(at("spec.json"), []byte("a b"), 0o600))
	must(t, os.Symlink("/dev/ttyUSB0", at("moved")))
	plan := files.Plan{
		Label:      "--run-dir",
		Stale:      []string{at("stale.json"), at("moved"), at("absent")},
		StaleTrees: []string{at("stale"), at("missing")},
		Reduced:    []files.File{{Path: at("spec.json"), Text: []byte("b"), Mode: 0o644}},
		Dirs:       []string{at("health/x")},
		Missing: []files.File{
			{Path: at("spec.json"), Text: []byte("b c"), Mode: 0o644},
			{Path: at("links/stick/tty"), Target: "/dev/ttyUSB1"},
			{Path: at("features"), Staging: at(".features"), Text: []byte("n=1"), Mode: 0o644},
		},
	}
	must(t, plan.Remove())
	if got, want := tree(t, dir), []string{"spec.json = b"}; !slices.Equal(got, want) {
		t.Errorf("after Remove: %q, want %q", got, want)
	}
	must(t, plan.Make())
	want := []string{"features = n=1", "health/", "health/x/", "links/", "links/stick/", "links/stick/tty -> /dev/ttyUSB1", "spec.json = b c"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("after Make: %q, want %q", got, want)
	}
	if info, err := os.Stat(at("health/x")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("directory: %v, %v; any user should be able to enter it", info, err)
	}
}

// A file that can't be rewritten without its stale part is removed, and a failure does not
// stop the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("spec.json"), []byte("a b"), 0o600))
	must(t, os.MkdirAll(at("spec.json.tmp/x"), 0o755)) // in the way of the new content
	must(t, os.WriteFile(at("file"), nil, 0o600))
	plan := files.Plan{
		Label:   "--cdi-dir",
		Reduced: []files.File{{Path: at("spec.json"), Text: []byte("b"), Mode: 0o644}},
		Missing: []files.File{
			{Path: at("file/below"), Target: "/dev/x"},
			{Path: at("last"), Target: "/dev/y"},
		},
	}
	err := plan.Remove()
	if err == nil || !strings.HasPrefix(err.Error(), "--cdi-dir: ") {
		t.Errorf("Remove: %v, want an error that begins with the label", err)
	}
	err = plan.Make()
	if err == nil || !strings.Contains(err.Error(), "file: not a directory") {
		t.Errorf("Make: %v, want an error about a file in the place of a directory", err)
	}
	if got, want := tree(t, dir), []string{"file = ", "last -> /dev/y", "spec.json.tmp/", "spec.json.tmp/x/"}; !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
}

// Without a directory nothing is written into the working directory.
func TestNoDirectory(t *testing.T) {
	t.Parallel()
	plan := files.Plan{Label: "--cdi-dir", Missing: []files.File{{Path: "generic-dp_x.json", Text: []byte("x"), Mode: 0o600}}}
	if err := plan.Make(); err == nil || !strings.Contains(err.Error(), `--cdi-dir: no directory is set for "generic-dp_x.json"`) {
		t.Errorf("error %v, want one about the directory", err)
	}
}
