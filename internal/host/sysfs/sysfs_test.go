package sysfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a sysfs tree: a value with the prefix "-> " is a link, "dir" a directory,
// any other an attribute.
func tree(t *testing.T, files map[string]string) FS {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, file)
		} else if text == "dir" {
			err = os.MkdirAll(file, 0o755)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sys := New(root)
	sys.magic = 0 // on any file system
	return sys
}

func TestAttrIsSafeToPrint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, content, want string }{
		{"one newline goes", "A1B2\n", "A1B2"},
		{"spaces stay", " A1 B2 \n", " A1 B2 "},
		{"control characters go", "A\x00\x1b[1mB\x7f\n\n", "A[1mB"},
		{"C1 control characters go", "A\u0085\u009bB\n", "AB"},
		{"not UTF-8 is replaced", "A\xff\xfeB\n", "A\uFFFDB"},
		{"other scripts stay", "Gerät ½\n", "Gerät ½"},
		{"empty", "\n", ""},
		{"the limit", strings.Repeat("x", 2*maxAttr), strings.Repeat("x", maxAttr)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := tree(t, map[string]string{"devices/a/serial": c.content}).Dir("devices/a")
			if got := d.Attr("serial"); got != c.want || d.Err() != nil {
				t.Errorf("Attr = %q, %v; want %q", got, d.Err(), c.want)
			}
		})
	}
}
