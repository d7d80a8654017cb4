package pattern_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

func TestGlob(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"dev/snd/timer", "dev/snd/by-path/card", "dev/fuse", "run/a/x.sock", "run/b/x.sock", "run/b/c/x.sock", "run/b/.hidden"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"run/link": "b", "run/a/loop": "..", "run/a/gone": "/nowhere"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	here := func(host string) string { return root + host }
	for _, tt := range []struct{ patterns, want string }{
		{"/dev/fuse", "/dev/fuse"},
		{"/dev/fuse1", ""},
		{"/dev/*", "/dev/fuse /dev/snd"},
		{"/dev/*/*", "/dev/snd/by-path /dev/snd/timer"},
		{"/dev/snd/**", "/dev/snd /dev/snd/by-path /dev/snd/by-path/card /dev/snd/timer"},
		{"/**/card", "/dev/snd/by-path/card"},
		{"/run/*/x.sock", "/run/a/x.sock /run/b/x.sock"}, // no link is followed
		{"/run/**/x.sock", "/run/a/x.sock /run/b/c/x.sock /run/b/x.sock"},
		{"/run/link/*", "/run/link/.hidden /run/link/c /run/link/x.sock"}, // except before the wildcards
		{"/run/link/**", "/run/link /run/link/.hidden /run/link/c /run/link/c/x.sock /run/link/x.sock"},
		{"/run/a/*", "/run/a/gone /run/a/loop /run/a/x.sock"},
		{"/run/{a,b}/x* /run/b/x.sock !/run/a/*", "/run/b/x.sock"},
		{"/nothing/*", ""},
	} {
		v := values(t, pattern.Path, strings.Fields(tt.patterns)...)
		found, complete := v.Glob(here, time.Now().Add(time.Hour))
		got := strings.Join(found, " ")
		if diff := cmp.Diff(tt.want, got); diff != "" || !complete {
			t.Errorf("%s, complete %t (-want +got):\n%s", tt.patterns, complete, diff)
		}
		if found, complete := v.Glob(here, time.Now()); len(found) > 0 || complete {
			t.Errorf("%s without any time: %q, complete %t", tt.patterns, found, complete)
		}
	}
}

// A FIFO in the place of a directory does not block a search.
func TestGlobOfAFIFO(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, _ := values(t, pattern.Path, "/fifo/*").Glob(func(host string) string { return root + host }, time.Now().Add(time.Hour))
	if len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

func TestThrough(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ pattern, yes, no string }{
		{"/dev/snd/*", "/dev /dev/snd", "/dev/sn /dev/snd/a /run"},
		{"/dev/fuse", "/dev", "/dev/fuse"},
		{"/dev/*/by-id/*", "/dev /dev/disk /dev/disk/by-id", "/dev/disk/by-path /dev/disk/by-id/x"},
		{"/dev/a/**/card0", "/dev /dev/a /dev/a/b/c", "/dev/b"},
		{"/dev/a/**", "/dev /dev/a /dev/a/b/c", "/dev/b"},
	} {
		v := values(t, pattern.Path, tt.pattern).Alternatives()[0].Through()
		for _, dir := range strings.Fields(tt.yes) {
			if !v.Match(dir) {
				t.Errorf("%s does not lead through %s", tt.pattern, dir)
			}
		}
		for _, dir := range strings.Fields(tt.no) {
			if v.Match(dir) {
				t.Errorf("%s leads through %s", tt.pattern, dir)
			}
		}
	}
}
