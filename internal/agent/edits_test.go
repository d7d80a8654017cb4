package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every kind of edit is noticed.
func TestEditsAreNoticed(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// mount makes a ConfigMap's next version as the kubelet does (k8s.io/kubernetes,
	// pkg/volume/util, AtomicWriter).
	mount := func(t *testing.T, dir, version, text string) {
		t.Helper()
		write(t, filepath.Join(dir, version, "config.toml"), text)
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if old == "" {
			must(t, os.Symlink("..data/config.toml", filepath.Join(dir, "config.toml")))
		} else {
			must(t, os.RemoveAll(filepath.Join(dir, old)))
		}
	}
	for name, tc := range map[string]struct {
		config string // below the directory of the test
		first  func(t *testing.T, dir, text string)
		next   func(t *testing.T, dir, text string)
	}{
		"written in place": {
			config: "config.toml",
			first:  func(t *testing.T, dir, text string) { write(t, dir+"/config.toml", text) },
			next:   func(t *testing.T, dir, text string) { write(t, dir+"/config.toml", text) },
		},
		"renamed into place, as vi does": {
			config: "config.toml",
			first:  func(t *testing.T, dir, text string) { write(t, dir+"/config.toml", text) },
			next: func(t *testing.T, dir, text string) {
				must(t, os.Rename(dir+"/config.toml", dir+"/config.toml~"))
				write(t, dir+"/config.toml", text)
				must(t, os.Remove(dir+"/config.toml~"))
			},
		},
		"a link on the way is swapped": {
			config: "config.toml",
			first: func(t *testing.T, dir, text string) {
				write(t, dir+"/a/real.toml", text)
				must(t, os.Mkdir(dir+"/way", 0o755))
				must(t, os.Symlink(dir+"/a", dir+"/way/link"))
				must(t, os.Symlink("way/link/real.toml", dir+"/config.toml"))
			},
			next: func(t *testing.T, dir, text string) {
				write(t, dir+"/b/real.toml", text)
				must(t, os.Symlink(dir+"/b", dir+"/way/new"))
				must(t, os.Rename(dir+"/way/new", dir+"/way/link"))
			},
		},
		"file in a ConfigMap": {
			config: "mount/config.toml",
			first:  func(t *testing.T, dir, text string) { mount(t, dir+"/mount", "..1", text) },
			next:   func(t *testing.T, dir, text string) { mount(t, dir+"/mount", "..2", text) },
		},
		"a file is added and one removed": {
			config: "conf.d",
			first:  func(t *testing.T, dir, text string) { write(t, dir+"/conf.d/first.toml", text) },
			next: func(t *testing.T, dir, text string) {
				write(t, dir+"/conf.d/.hidden.new", text)
				must(t, os.Rename(dir+"/conf.d/.hidden.new", dir+"/conf.d/second.toml"))
				must(t, os.Remove(dir+"/conf.d/first.toml"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "")
			n.addNodes("r-a")
			dir := t.TempDir()
			n.options.Config = filepath.Join(dir, tc.config)
			tc.first(t, dir, parts("r"))
			_, stop := n.serve()
			n.untilListed("example.com/r", []string{"r-a"}, nil)
			tc.next(t, dir, parts("r count = 2"))
			n.untilListed("example.com/r", []string{"r-a", "r-a::1"}, nil)
			if n := n.kubelet.Registrations("example.com/r"); n != 1 {
				t.Errorf("%d registrations, want 1", n)
			}
			if log := n.log.String(); strings.Contains(log, "level=ERROR") || strings.Count(log, "configuration loaded") != 1 {
				t.Error("want one new configuration and no problem in the log")
			}
			stop()
		})
	}
}
