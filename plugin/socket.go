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
	// maxSocketPath is what sun_path holds besides its final NUL (unix(7)).
	maxSocketPath = 107
	// nameLength is the length of every socket name, "gdp-", 8 digits of the
	// resource, "-", 16 random ones, ".sock".
	nameLength = 34
	// sweepAge is how old a socket must be to be swept. One that is bound but
	// does not listen yet refuses connections like a dead one.
	sweepAge = time.Minute
)

// fileID tells a file from the next one under the same name: inodes are reused,
// so the time of making is a part of it.
type fileID struct {
	dev, ino uint64
	made     unix.Timespec
}

// identify returns the identity of the file at path, and false where it can't be
// told, which is as good as none.
func identify(path string) (fileID, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, false
	}
	return fileID{dev: uint64(st.Dev), ino: st.Ino, made: st.Mtim}, true
}

// CheckDir reports whether sockets can have their place in dir, the kubelet's
// device-plugins directory as it is seen here: a path may be too long for one.
func CheckDir(dir string) error {
	if n := len(dir) + 1 + nameLength; n > maxSocketPath {
		return fmt.Errorf("--kubelet-dir: %q: a socket there would have a path of %d bytes: at most %d are allowed, so the directory's path may have %d",
			dir, n, maxSocketPath, maxSocketPath-nameLength-1)
	}
	return nil
}

// ownSocket is a listening socket in the kubelet's directory.
type ownSocket struct {
	name, path string
	id         fileID
	listener   *net.UnixListener
}

// listen makes a socket for resource in dir, under a name that was never there.
func listen(dir, resource string) (*ownSocket, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	name := socketName(resource)
	path := filepath.Join(dir, name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	// Go removes whatever is at the path when the listener closes.
	l.SetUnlinkOnClose(false)
	id, ok := identify(path)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("make a socket: %q was removed at once", path)
	}
	return &ownSocket{name: name, path: path, id: id, listener: l}, nil
}

// resource is the part of the name that stands for the resource.
func (s *ownSocket) resource() string {
	r, _ := resourceOf(s.name)
	return r
}

// remove ends the socket and removes its file, unless that is another one's.
func (s *ownSocket) remove() {
	_ = s.listener.Close()
	if id, ok := identify(s.path); ok && id == s.id {
		_ = os.Remove(s.path)
	}
}

// socketName returns a fresh name of nameLength characters. It is no secret:
// what is random of the kernel's is not asked for, since the kernel of a small
// machine lets the first who asks after a boot wait for a second (random(4)).
func socketName(resource string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(resource))
	return fmt.Sprintf("gdp-%08x-%016x.sock", h.Sum32(), rand.Uint64())
}

// resourceOf returns the part of a socket's name that stands for the resource, and
// false for a name that is not of the form.
func resourceOf(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "gdp-")
	resource, random, dash := strings.Cut(rest, "-")
	random, sock := strings.CutSuffix(random, ".sock")
	return resource, ok && dash && sock && hexDigits(resource, 8) && hexDigits(random, 16)
}

// hexDigits reports whether s is n hexadecimal digits as socketName writes them.
func hexDigits(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// SweepSockets removes sockets in dir that an instance of this program left
// behind when it was killed, and returns their names. Such a socket has a name
// of this program's exact form, is older than a minute and refuses connections:
// nobody can listen on it ever again, since that takes a new bind, which makes a
// new file. A younger one may belong to an instance that starts beside this one
// in a rolling update and has not come to listen yet.
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

// dead reports whether nobody listens on the socket at path.
func dead(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
