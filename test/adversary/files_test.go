//go:build adversary

package adversary

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// replacements put something else in the place of a file.
var replacements = map[string]func(path string) error{
	"a FIFO":                func(path string) error { return unix.Mkfifo(path, 0o644) },
	"a link to /dev/zero":   func(path string) error { return os.Symlink("/dev/zero", path) },
	"a link to /proc/kmsg":  func(path string) error { return os.Symlink("/proc/kmsg", path) },
	"a link to itself":      func(path string) error { return os.Symlink(path, path) },
	"a directory":           func(path string) error { return os.Mkdir(path, 0o755) },
	"a socket":              func(path string) error { _, err := net.Listen("unix", path); return err },
	"3 GiB of nothing":      func(path string) error { return sparse(path, 3<<30) },
	"lists in lists":        func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("[", 1<<20)), 0o644) },
	"objects in objects":    func(path string) error { return os.WriteFile(path, []byte(strings.Repeat(`{"a":`, 200_000)), 0o644) },
	"a file without a byte": func(path string) error { return os.WriteFile(path, nil, 0o644) },
}

func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// usesCDI refers to foreign CDI devices, so that their specs are read.
const usesCDI = goodConfig + `
[[resource]]
name = "licensed"
match.cdi_device = "vendor.example/licence=a"
[[resource]]
name = "gpu"
match.cdi_device = "vendor.example/gpu=*"
`

// Nothing in the place of a file that is read, or beside it, delays the good resource.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"cdi/z.json", "state/state.json", "state/last-good-config.json"} {
		for name, put := range replacements {
			t.Run(place+" is "+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				n.args = []string{"--allow=cdi:vendor.example/*"}
				n.configure(usesCDI)
				n.serve()
				n.replace(place, put)
				n.reload(usesCDI + "# edited once")
				n.stop()
				n.replace(place, put)
				n.serve()
				n.reload(usesCDI + "# edited twice")
				n.stop()
			})
		}
	}
}

// If the configuration is not a regular file, the last good one is served.
func TestConfigurationFile(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"config/config.toml", "config/z.toml"} {
		for name, put := range replacements {
			t.Run(place+" is "+name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				n.serve()
				isIgnored := name == "a directory" || name == "a link to itself"
				if place == "config/z.toml" && isIgnored {
					n.replace(place, put) // the other file is the same: no reload
				} else {
					n.reloadAfter(func() { n.replace(place, put) })
				}
				n.waitServed()
				n.stop()
				n.serve()
				_, _ = n.command("check", "--config", n.path("config"))
				n.must(os.RemoveAll(n.path(place)))
				n.reload(goodConfig + "# edited")
				n.stop()
			})
		}
	}
}

// replace puts something else in the place of a file.
func (n *node) replace(place string, put func(string) error) {
	n.Helper()
	n.must(os.RemoveAll(n.path("next")))
	n.must(put(n.path("next")))
	n.must(os.RemoveAll(n.path(place)))
	n.must(os.Rename(n.path("next"), n.path(place)))
}

// A state directory that can't be read or written costs no device.
func TestStateDirectory(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(n *node){
		"full": func(n *node) {
			n.mount("size=16k")
			for i := range 100 {
				_ = os.WriteFile(n.path("state", fmt.Sprint(i)), make([]byte, 4096), 0o644)
			}
		},
		"without inodes": func(n *node) {
			n.mount("nr_inodes=3")
			for i := range 3 {
				_ = os.WriteFile(n.path("state", fmt.Sprint(i)), nil, 0o644)
			}
		},
		"read-only": func(n *node) {
			n.mount("size=16k")
			n.must(unix.Mount("", n.path("state"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		},
		"a file": func(n *node) {
			n.must(os.Remove(n.path("state")))
			n.must(os.WriteFile(n.path("state"), nil, 0o644))
		},
		"a FIFO": func(n *node) {
			n.must(os.Remove(n.path("state")))
			n.must(unix.Mkfifo(n.path("state"), 0o644))
		},
		"full of files": func(n *node) {
			for i := range 20_000 {
				n.must(os.WriteFile(n.path("state", fmt.Sprint(i, ".tmp")), nil, 0o644))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			prepare(n)
			n.serve()
			n.reload(goodConfig + "# edited")
			n.stop()
		})
	}
}

// mount mounts a tmpfs on the state directory.
func (n *node) mount(options string) {
	n.Helper()
	dir := n.path("state")
	n.must(unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	n.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// Files of other plugins in the kubelet's directory, with names like ours, don't prevent
// serving.
func TestKubeletDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i, put := range []string{"a FIFO", "a link to /dev/zero", "a socket", "a directory"} {
		n.must(replacements[put](n.path("k", fmt.Sprintf("gdp-00000000-%016x.sock", i))))
	}
	n.serve()
	n.stop()
}

// More nodes than the scan may read change nothing for the devices that are known, and are no longer a
// problem when they are gone.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.serve()
	const number = 60_000
	storm := filepath.Join(n.host.Dev(), "storm")
	// A tree of files sends no uevent, but a change of names in /dev itself causes a scan.
	hidden := filepath.Join(n.host.Root, "storm")
	n.must(os.Mkdir(hidden, 0o755))
	for i := range number {
		n.must(unix.Mknod(filepath.Join(hidden, strconv.Itoa(i)), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	}
	n.must(os.Rename(hidden, storm))
	n.waitLogged(0, "more than 32000 nodes and links")
	n.checkServes()
	if got := n.kubelet.Count(good); got.Allocatable != 1 {
		n.fatal("%+v, want 1 allocatable", got)
	}
	n.must(os.Rename(storm, hidden))
	n.waitReady()
	n.stop()
}
