package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

const fuse = `domain = "example.com"
[[resource]]
name = "fuse"
match.glob = "/dev/fuse"
`

const kvm = `[[resource]]
name = "kvm"
match.glob = "/dev/kvm"
`

// load reads and parses the configuration at a path.
func load(path string) (*config.Config, error) {
	files, ignored, err := config.Read(path)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(files...)
	if err != nil {
		return nil, err
	}
	cfg.Notes = append(ignored, cfg.Notes...)
	return cfg, nil
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path))
}

func names(cfg *config.Config) []string {
	var out []string
	for _, r := range cfg.Resources {
		out = append(out, r.Name)
	}
	return out
}

func TestLoadFile(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "gdp.conf", fuse)
	cfg, err := load(path)
	must(t, err)
	equal(t, "files", []string{"gdp.conf"}, cfg.Files)
	if got, want := cfg.Resources[0].Place, path+`: resource 1 ("fuse")`; got != want {
		t.Errorf("place = %q, want %q", got, want)
	}
}

// The files of a directory are one configuration: the domain of one applies to all, and
// resources are in the order of file names.
func TestLoadDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "20-fuse.toml", fuse)
	write(t, dir, "10-kvm.toml", kvm)
	write(t, dir, ".30-hidden.toml", "no TOML")
	write(t, dir, "README", "no TOML")
	write(t, dir, "40-old.toml.bak", "no TOML")
	cfg, err := load(dir)
	must(t, err)
	equal(t, "files", []string{"10-kvm.toml", "20-fuse.toml"}, cfg.Files)
	equal(t, "resources", []string{"example.com/kvm", "example.com/fuse"}, names(cfg))

	// A dangling link and files with similar names are ignored, with a note for each.
	symlink(t, "nowhere", filepath.Join(dir, "50-gone.toml"))
	write(t, dir, "60-fuse.TOML", fuse)
	write(t, dir, "x.yaml", fuse)
	noted, err := load(dir)
	if err != nil || noted.Hash != cfg.Hash || len(noted.Notes) != 3 {
		t.Fatalf("with ignored files: %v, notes %q", err, noted.Notes)
	}
	for i, name := range []string{"50-gone.toml", "60-fuse.TOML", "x.yaml"} {
		if got := noted.Notes[i].String(); !strings.HasPrefix(got, filepath.Join(dir, name)+": is ignored: ") {
			t.Errorf("note %d is %q, want one about %s", i, got, name)
		}
	}
}

// A mounted ConfigMap: files are links into ..data, a link to a directory that the
// kubelet replaces. Its new and stale links are not read.
func TestLoadConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "..2024_05_01/a.toml", fuse)
	write(t, dir, "..2024_05_01/b.toml", kvm)
	symlink(t, "..2024_05_01", filepath.Join(dir, "..data"))
	for _, name := range []string{"a.toml", "b.toml", "removed.toml"} {
		symlink(t, "..data/"+name, filepath.Join(dir, name))
	}
	cfg, err := load(dir)
	must(t, err)
	equal(t, "files", []string{"a.toml", "b.toml"}, cfg.Files)

	// The same text in a plain directory is the same configuration.
	plain := t.TempDir()
	write(t, plain, "a.toml", fuse)
	write(t, plain, "b.toml", kvm)
	other, err := load(plain)
	must(t, err)
	if cfg.Hash != other.Hash {
		t.Errorf("hashes differ: %s, %s", cfg.Hash, other.Hash)
	}
}

// While the kubelet replaces a ConfigMap, every reading has all files of one version.
func TestReadWhileReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"a.toml", "b.toml"}
	replace := func(version string) {
		for _, name := range names {
			write(t, dir, filepath.Join(version, name), version)
		}
		data := filepath.Join(dir, "..data")
		old, _ := os.Readlink(data)
		symlink(t, version, data+"_tmp")
		must(t, os.Rename(data+"_tmp", data))
		if old == "" {
			return
		}
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
	replace("..0")
	for _, name := range names {
		symlink(t, filepath.Join("..data", name), filepath.Join(dir, name))
	}
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			files, _, err := config.Read(dir)
			if err != nil || len(files) != 2 || string(files[0].Data) != string(files[1].Data) {
				t.Errorf("read %q, %v, want two files of one version", files, err)
			}
			if _, _, err := config.Read(filepath.Join(dir, "a.toml")); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 500 {
		replace(fmt.Sprintf("..%d", i+1))
	}
	close(done)
	reading.Wait()
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	must(t, os.Mkdir(empty, 0o755))
	write(t, dir, "hidden/.a.toml", fuse)
	symlink(t, "nowhere", filepath.Join(dir, "b.toml"))
	symlink(t, "nowhere", filepath.Join(filepath.Dir(write(t, dir, "dangling/README", "")), "b.toml"))
	must(t, os.MkdirAll(filepath.Join(dir, "directory/a.toml"), 0o755))
	tests := map[string]string{
		filepath.Join(dir, "missing"):   "no such file or directory",
		empty:                           "no file in this directory has a name that ends in \".toml\"",
		filepath.Join(dir, "hidden"):    "no file in this directory has a name that ends in \".toml\"",
		filepath.Join(dir, "b.toml"):    "no such file or directory",
		filepath.Join(dir, "dangling"):  "b.toml: is ignored: it is a symbolic link to a file that does not exist",
		filepath.Join(dir, "directory"): "not a regular file",
	}
	if runtime.GOOS == "linux" {
		fifo := filepath.Join(dir, "fifo.toml")
		must(t, syscall.Mkfifo(fifo, 0o644))
		tests[fifo] = "not a regular file"
	}
	for path, want := range tests {
		cfg, err := load(path)
		if cfg != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("Load(%q) = %v, %v, want an error with %q and the path", path, cfg, err, want)
		}
		var problems config.Problems
		if errors.As(err, &problems) {
			t.Errorf("Load(%q): %v is of type Problems", path, err)
		}
	}
}

func TestLoadTooLarge(t *testing.T) {
	t.Parallel()
	comment := strings.Repeat("#", 1<<20-len(fuse))
	if _, err := load(write(t, t.TempDir(), "a.toml", fuse+comment)); err != nil {
		t.Errorf("a file of 1 MiB: %v", err)
	}
	path := write(t, t.TempDir(), "a.toml", fuse+comment+"#")
	cfg, err := load(path)
	want := "read configuration: read " + path + ": 1048577 bytes exceed the limit of 1048576"
	if cfg != nil || err == nil || err.Error() != want {
		t.Errorf("a larger file: %v, %v, want %q", cfg, err, want)
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	file := func(name, text string) config.File { return config.File{Name: name, Data: []byte(text)} }
	hashes := []string{
		config.Hash([]config.File{file("a", fuse), file("b", kvm)}),
		config.Hash([]config.File{file("a", fuse+kvm)}),
		config.Hash([]config.File{file("a", fuse+"\n"), file("b", kvm)}),
		config.Hash([]config.File{file("a", fuse), file("c", kvm)}),
		config.Hash([]config.File{file("a", fuse), file("b", kvm), file("c", "")}),
	}
	slices.Sort(hashes)
	if len(slices.Compact(hashes)) != 5 {
		t.Error("different texts have the same hash")
	}
}
