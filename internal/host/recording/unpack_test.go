package recording_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/host/recording"
)

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	for _, c := range []struct{ name, archive, want string }{
		{"nothing", "", "not a recorded machine"},
		{"another text", "Dear maintainers,\n-- \n", "not a recorded machine"},
		{"a path that leads out", "-- dev/../../x --\n", "not a path below sys, dev, proc or host"},
		{"an absolute path", "-- /dev/x --\n", "not a path below sys, dev, proc or host"},
		{"another tree", "-- etc/passwd --\n", "not a path below sys, dev, proc or host"},
		{"a root", "-- dev/ --\n", "not a path below sys, dev, proc or host"},
		{"a NUL", "-- dev/a\x00b --", "a name or a target that an archive cannot have"},
		{"half a text", `-- sys/a = "x --`, "is not a Go string"},
		{"a separator in a target", `-- dev/a -> b -> c --`, "a name or a target that an archive cannot have"},
		{"a link with a content", "-- dev/a -> b --\nchar 1:3\n", "has the content"},
		{"a directory with a content", "-- dev/a/ --\nchar 1:3\n", "has the content"},
		{"a link out of sys", "-- sys/a -> ../../etc --\n", "leads out of sys"},
		{"an absolute link in sys", "-- sys/a -> /etc --\n", "leads out of sys"},
		{"a link to dev", "-- sys/a -> ../dev/x --\n", "leads out of sys"},
		{"a link that goes up behind a link", "-- sys/devices/a/b/up -> ../../../devices --\n-- sys/devices/a/b/out -> up/../../../x --\n", "leads out of sys"},
		{"a link in proc", "-- proc/self -> 1 --\n", "only files are allowed below proc"},
		{"a directory in proc", "-- proc/1/ --\n", "only files are allowed below proc"},
		{"a mount in sys", "-- sys/devices/ --\nmount\n", "mounts are only allowed below dev"},
		{"a node without a number", "-- dev/null --\nchar\n", "is not a node"},
		{"a node of another kind", "-- dev/null --\nfifo 1:3\n", "is not a node"},
		{"the same file twice", "-- sys/a --\n1\n-- sys/a --\n2\n", "occurs twice"},
		{"a link in place of a directory", "-- sys/a/b --\n1\n-- sys/a -> devices --\n", "file exists"},
		{"a file behind a link that leads out", "-- dev/out -> " + outside + " --\n-- dev/out/x --\nchar 1:3\n", `is below the link "dev/out"`},
		{"a file below a file", "-- sys/a --\n1\n-- sys/a/b --\n2\n", `is below "sys/a", which is not a directory`},
		{"a name that is too long", "-- dev/" + strings.Repeat("x", 300) + "/ --\n", "file name too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := recording.Unpack(t.TempDir(), []byte(c.archive))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v; want %q", err, c.want)
			}
			if _, err := os.Lstat(filepath.Join(outside, "x")); err == nil {
				t.Error("it was written all the same")
			}
		})
	}
}

// hostile archives are well-formed attacks.
func hostile() []string {
	return []string{
		"-- dev/x -> /etc/passwd --\n-- dev/y -> x/z --\n-- dev/z -> ../../../../etc --\n",
		"-- sys/devices/a/b/up -> ../../../devices --\n-- sys/devices/a/b/out -> up/x --\n",
		"-- sys/bus/pci/devices/0000:00:00.0 -> ../../../devices/a --\n-- sys/devices/a/modalias = \"\\xff\\n-- x --\" --\n",
		"-- sys/bus/usb/devices/1-1 -> ../../../devices/usb1/1-1 --\n-- sys/devices/usb1/1-1/idVendor --\n0403\n-- dev/bus/usb/001/002 --\nchar 189:1\n" +
			"-- sys/dev/char/189:1 -> ../../devices/usb1/1-1 --\n-- sys/devices/usb1/1-1/serial -> ../../../class --\n",
		"-- dev/pts/ --\nmount\n-- dev/ptmx -> pts/ptmx --\n-- dev/pts/ptmx --\nchar 5:2\n",
		"-- sys/a -> devices --\n-- sys/b -> a --\n-- sys/class/x -> y --\n-- sys/bus/pci -> ../devices --\n-- sys/devices/devices -> . --\n",
		"-- dev/a -> a --\n-- dev/b -> c --\n-- dev/c -> b --\n-- dev/d -> d/d/d/d --\n-- dev/e -> . --\n-- dev/f -> e/e/e/null --\n-- dev/null --\nchar 1:3\n",
		"-- dev/null --\nblock 8:0\n-- proc/1/mountinfo --\n1 2 8:0 / /a\\012b\\033 - x /dev/null\n - \n1 2 8:0 / - - - -\n-- proc/swaps = \"/dev/null\\x00 \\xff\\n/dev/null\" --\n",
		"-- sys/class/net/a -> ../../devices/b/net/a --\n-- sys/devices/b/net/a/type --\n1\n-- sys/devices/b/net/a/upper_x -> ../../../devices --\n-- proc/1/net/dev --\na:\n-- proc/1/net/route --\na 00000000 x 1 x x x 00000000\n" +
			"-- sys/bus/mdev/devices/u -> ../../../devices/b/u --\n-- sys/devices/b/u/mdev_type -> ../../../class --\n-- sys/fs/btrfs/u/devices/x -> ../../../../devices/b --\n",
		"-- dev/null --\nchar 4294967295:4294967295\n-- dev/zero --\nchar 99999999999999999999:1\n",
	}
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	for _, archive := range hostile() {
		tree := unpack(t, []byte(archive))
		for _, redact := range []bool{false, true} {
			again := unpack(t, record(t, options(tree), recording.Options{Redact: redact}))
			want, got := scan(t, options(tree)), scan(t, options(again))
			want.Problems, got.Problems = nil, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("redacted %v:\n%s", redact, diff)
			}
		}
	}
}

// For any archive, nothing is written outside the directory, and no link of sysfs
// points there.
func FuzzUnpack(f *testing.F) {
	for _, archive := range hostile() {
		f.Add([]byte(archive))
	}
	f.Add([]byte("-- sys/devices/a/b/up -> ../../../devices --\n-- sys/devices/a/b/out -> up/../../../x --\n"))
	f.Add([]byte("-- dev/x -> /etc/passwd --\n-- dev/x/y --\nchar 1:3\n"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		above := t.TempDir()
		tree := recording.Tree{Root: filepath.Join(above, "in", "here")}
		must(t, os.MkdirAll(tree.Root, 0o755))
		err := recording.Unpack(tree.Root, archive)
		for _, dir := range []string{above, filepath.Join(above, "in")} {
			entries, readErr := os.ReadDir(dir)
			if readErr != nil || len(entries) != 1 {
				t.Fatalf("outside: %v, %v", entries, readErr)
			}
		}
		if err != nil {
			return
		}
		walkErr := filepath.WalkDir(tree.Sysfs(), func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.Type() != fs.ModeSymlink {
				return err
			}
			if to, err := filepath.EvalSymlinks(p); err == nil && to != tree.Sysfs() && !strings.HasPrefix(to, tree.Sysfs()+"/") {
				t.Errorf("%q leads to %q", p, to)
			}
			return nil
		})
		if walkErr != nil {
			t.Fatal(walkErr)
		}
	})
}
