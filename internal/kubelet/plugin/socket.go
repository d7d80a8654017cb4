package plugin

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSocketPath is the capacity of sun_path without its final NUL (unix(7)).
	maxSocketPath = 107
	// nameLength is the length of every socket name, "gdp-", 8 digits of the
	// resource, "-", 16 random ones, ".sock".
	nameLength = 34
	// sweepAge is the minimum age of a socket to sweep: one that is bound but does not
	// listen yet refuses connections like a dead one.
	sweepAge = time.Minute
)

// fileID distinguishes a file from its successors with its name. Inodes are reused,
// hence the creation time.
type fileID struct {
	dev, ino uint64
	made     time.Time
}

// identify returns the identity of the file at path; false if it can't be read.
func identify(path string) (fileID, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, false
	}
	return fileID{dev: uint64(st.Dev), ino: st.Ino, made: time.Unix(0, st.Mtim.Nano())}, true
}

// CheckDir is an error if the paths of sockets in dir, the kubelet's device-plugins
// directory, would be too long.
func CheckDir(dir string) error {
	if n := len(dir) + 1 + nameLength; n > maxSocketPath {
		return fmt.Errorf("--kubelet-dir: %q: a socket there would have a path of %d bytes: at most %d are allowed, so the directory's path may have %d",
			dir, n, maxSocketPath, maxSocketPath-nameLength-1)
	}
	return nil
}

// Socket is a listening socket in a directory of the kubelet.
type Socket struct {
	Path     string
	Listener *net.UnixListener
	name     string
	id       fileID
}

// Listen makes a socket for resource in dir, under a fresh name.
func Listen(dir, resource string) (*Socket, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	name := socketName(resource)
	path := filepath.Join(dir, name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		// Without the path, whose random part would make each reason differ.
		return nil, fmt.Errorf("make a socket in %q: %w", dir, errors.Unwrap(err))
	}
	// Closing would remove any file at the path.
	l.SetUnlinkOnClose(false)
	id, ok := identify(path)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("make a socket in %q: it was removed at once", dir)
	}
	return &Socket{Path: path, Listener: l, name: name, id: id}, nil
}

// resource is the part of the name that identifies the resource.
func (s *Socket) resource() string {
	r, _ := resourceOf(s.name)
	return r
}

// Present reports whether the socket's file is there.
func (s *Socket) Present() bool {
	id, ok := identify(s.Path)
	return ok && id == s.id
}

// Remove closes the socket and removes its file, unless it was replaced.
func (s *Socket) Remove() {
	_ = s.Listener.Close()
	if s.Present() {
		_ = os.Remove(s.Path)
	}
}

// socketName returns a fresh name of nameLength characters. It is not secret: the
// kernel's random numbers are not used, since they block their first reader on a small
// machine for a second after boot (random(4)).
func socketName(resource string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(resource))
	return fmt.Sprintf("gdp-%08x-%016x.sock", h.Sum32(), rand.Uint64())
}

// resourceOf returns the part of a socket's name that identifies the resource, and
// false for a name of another form.
func resourceOf(name string) (string, bool) {
	if len(name) != nameLength || name[:4] != "gdp-" || name[12] != '-' || name[29:] != ".sock" ||
		strings.Trim(name[4:12]+name[13:29], "0123456789abcdef") != "" {
		return "", false
	}
	return name[4:12], true
}

// SweepSockets removes sockets in dir that killed instances of this program left, and
// returns their names. Their names have this program's exact form, they are older than a
// minute and refuse connections: nobody can listen on them again, since bind(2) makes a
// new file. A more recent one may belong to an instance that is just starting.
func SweepSockets(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("sweep sockets: %w", err)
	}
	var (
		removed []string
		errs    []error
	)
	for _, e := range entries {
		if _, ok := resourceOf(e.Name()); !ok || e.Type() != os.ModeSocket {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < sweepAge || !dead(path) {
			continue
		}
		if err := os.Remove(path); err != nil {
			errs = append(errs, fmt.Errorf("sweep sockets: %w", err))
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}

// dead reports whether the socket at path has no listener.
func dead(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
