// Package kubelet has what all plugins of the kubelet need: sockets in its directories, answers to its
// calls in time, clients of its own sockets, and its list of pods with their devices.
package kubelet

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSocketPath is the capacity of sun_path without its final NUL (unix(7)).
	maxSocketPath = 107
	// nameFormat is the form of every socket name: 8 digits of the resource, and 16 random ones.
	nameFormat = "gdp-%08x-%016x.sock"
	nameLength = len("gdp-00000000-0000000000000000.sock")
	// listenWithin is the time between the two checks of a socket to sweep. A socket that is bound
	// but does not listen yet refuses connections, like a socket whose process has ended. Listen
	// makes both calls in a row. If it is delayed for longer, its plugin finds that the socket is
	// gone, and makes another.
	listenWithin = 100 * time.Millisecond
)

// FileID distinguishes a file from a later file with the same name. Inodes are reused,
// therefore it includes the creation time.
type FileID struct {
	dev, ino uint64
	// Made is the time of the file's creation.
	Made time.Time
}

// Identify returns the identity of the file at path. It returns false if the file can't be
// read.
func Identify(path string) (FileID, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return FileID{}, false
	}
	id := FileID{
		dev:  uint64(st.Dev),
		ino:  st.Ino,
		Made: time.Unix(0, st.Mtim.Nano()), // nobody writes to a socket's file
	}
	return id, true
}

// CheckDir is an error if the paths of sockets in dir, the kubelet's device-plugins
// directory, would be too long.
func CheckDir(dir string) error {
	const nameWithSlash = nameLength + 1
	n := len(dir) + nameWithSlash
	if n > maxSocketPath {
		return fmt.Errorf("--kubelet-dir: %q: a socket there would have a path of %d bytes: at most %d are allowed, so the directory's path may have %d",
			dir, n, maxSocketPath, maxSocketPath-nameWithSlash)
	}
	return nil
}

// Socket is a listening socket in a directory of the kubelet.
type Socket struct {
	// Path is the path of the file.
	Path     string
	Listener *net.UnixListener
	// Name is the last element of Path.
	Name string
	// ID is the file that Listen made. Another file may be at Path later.
	ID FileID
}

// Listen makes a socket for resource in dir, under a fresh name.
func Listen(dir, resource string) (*Socket, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	name := socketName(resource)
	path := filepath.Join(dir, name)
	address := &net.UnixAddr{Name: path, Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		// The outer error has the path, whose random part would make each reason differ.
		reason := errors.Unwrap(err)
		return nil, fmt.Errorf("make a socket in %q: %w", dir, reason)
	}
	// Closing would remove any file at the path.
	l.SetUnlinkOnClose(false)
	id, ok := Identify(path)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("make a socket in %q: it was removed at once", dir)
	}
	return &Socket{
		Path:     path,
		Listener: l,
		Name:     name,
		ID:       id,
	}, nil
}

// Present reports whether the socket's file is there.
func (s *Socket) Present() bool {
	id, ok := Identify(s.Path)
	return ok && id == s.ID
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
	return fmt.Sprintf(nameFormat, h.Sum32(), rand.Uint64())
}

// IsOwn reports whether a name is of a socket of this program, in whichever instance.
func IsOwn(name string) bool {
	var resource uint32
	var random uint64
	_, err := fmt.Sscanf(name, nameFormat, &resource, &random)
	return err == nil && name == fmt.Sprintf(nameFormat, resource, random)
}

// Sweep removes the sockets in dir that killed instances of this program left, and returns
// their names. Their names have this program's exact form, and they refuse connections twice.
// Nobody can listen on them again, because bind(2) makes a new file.
func Sweep(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("sweep sockets: %w", err)
	}
	var suspects []string
	for _, e := range entries {
		if IsOwn(e.Name()) && e.Type() == os.ModeSocket && Dead(filepath.Join(dir, e.Name())) {
			suspects = append(suspects, e.Name())
		}
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	time.Sleep(listenWithin)
	var (
		removed []string
		errs    []error
	)
	for _, name := range suspects {
		path := filepath.Join(dir, name)
		if !Dead(path) {
			continue
		}
		if err := os.Remove(path); err != nil {
			errs = append(errs, fmt.Errorf("sweep sockets: %w", err))
			continue
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(errs...)
}

// Dead reports whether the socket at path has no listener.
func Dead(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
