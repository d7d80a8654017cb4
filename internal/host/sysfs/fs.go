// Package sysfs reads attributes of devices below /sys, without policy.
//
// It opens only attributes that have a function here or are named by a configuration
// (FS.Attribute), so that no read hangs or has side effects: sysfs has files that
// wait for the device, that take its lock, or that act when they are read. A directory
// is given by its path relative to the root, "devices/pci0000:00", which is also its
// name in uevents (without the leading slash). A missing attribute is no error: it is
// read as "", or as -1 if it is a number.
package sysfs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/dirents"
)

// FS reads one sysfs tree.
type FS struct {
	root   string
	inodes bool    // identify files
	trace  *tracer // nil does not record
	dir    string  // the directory that is open as fd; empty is none
	fd     int
}

// New returns the tree below root: "/sys", the mount point of the host's, or a
// recording.
func New(root string) FS {
	return FS{root: root, inodes: dirents.CountsInodes(root)}
}

// maxAttr is the maximum size of an attribute, in bytes. The kernel gives a text
// attribute one page (Documentation/filesystems/sysfs.rst).
const maxAttr = 4096

// Entry is one symbolic link of a directory such as bus/pci/devices: the name of a
// device and its directory.
type Entry struct {
	Name string
	Path string
	// Ino is the inode of the link. The kernel makes the link when a device is added
	// (bus_add_device in drivers/base/bus.c): the same inode is the same device, and its
	// successor has another one. It is 0 in a tree whose file system reuses inodes.
	Ino uint64
}

// Check returns an error unless the root is a sysfs tree. It distinguishes a host
// without devices from a missing or unmounted root.
func (fs FS) Check() error {
	for _, dir := range []string{"devices", "dev"} {
		if fi, err := os.Stat(fs.abs(dir)); err != nil {
			return fmt.Errorf("%q is not a sysfs tree: %w", fs.root, err)
		} else if !fi.IsDir() {
			return fmt.Errorf("%q is not a sysfs tree: %q is not a directory", fs.root, dir)
		}
		fs.trace.dir(dir)
	}
	return nil
}

// Exists reports whether the directory dir exists.
func (fs FS) Exists(dir string) bool {
	kind, _ := fs.lstat(dir)
	if kind != 0 {
		fs.trace.dir(dir)
	}
	return kind != 0
}

// Gone reports whether err is that of a device that was removed while it was read: a
// removed directory gives ENOENT, an open attribute gives ENODEV (kernfs_get_active in
// fs/kernfs/file.c).
func Gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// errGone is the error of a removed device.
const errGone = unix.ENODEV

func (fs FS) abs(rel string) string { return fs.root + "/" + rel }

// enter opens a directory until leave: to walk its long path for each file takes as long as
// the rest of a read. A missing directory has no files.
func (fs *FS) enter(dir string) {
	fd, err := dirents.Retry(func() (int, error) {
		return unix.Open(fs.abs(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err == nil {
		fs.dir = dir
		fs.fd = fd
	}
}

func (fs *FS) leave() {
	if fs.dir != "" {
		unix.Close(fs.fd)
		fs.dir = ""
	}
}

// at returns the path of a file and the directory to which it is relative, as for
// openat(2).
func (fs FS) at(dir, name string) (fd int, file string) {
	if dir == fs.dir && dir != "" {
		return fs.fd, name
	}
	return unix.AT_FDCWD, fs.abs(dir + "/" + name)
}

// attr reads one attribute without its newline and control characters; absent is "".
// Errors are those of the kernel, with the name of the attribute.
func (fs FS) attr(dir, name string) (string, error) {
	var buf [maxAttr]byte
	n, err := fs.read(dir, name, buf[:])
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return clean(buf[:n]), nil
}

// number reads a decimal number from an attribute; absent is -1.
func (fs FS) number(dir, name string) (int, error) {
	s, err := fs.attr(dir, name)
	if s == "" {
		return -1, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return -1, fmt.Errorf("%s: %q is not a number", name, s)
	}
	return n, nil
}

// linkBase returns the last element of the target of the link dir/name, by which sysfs
// names drivers, subsystems and groups; absent is "".
func (fs FS) linkBase(dir, name string) (string, error) {
	target, err := fs.link(dir, name)
	return target[strings.LastIndexByte(target, '/')+1:], err
}

// link returns the target of the link dir/name as written; absent is "".
func (fs FS) link(dir, name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := fs.readlink(dir, name, buf[:])
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EINVAL {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	fs.trace.link(dir, name, buf[:n])
	return string(buf[:n]), nil
}

// entries reads a directory of links to devices, in no order. Known links with the same
// inodes are not read again. It leaves out names that take refuses, unless it
// is nil, links that vanish meanwhile, and other files, such as bonding_masters in
// class/net; the error reports unreadable ones. It wraps fs.ErrNotExist if the kernel does
// not have the directory.
func (fs FS) entries(dir string, known map[string]Entry, take func(name string) bool) ([]Entry, error) {
	fs.enter(dir)
	defer fs.leave()
	list := make([]Entry, 0, len(known))
	var errs []error
	err := dirents.Read(fs.abs(dir), func(f dirents.Entry) {
		if take != nil && !take(f.Name) {
			return
		}
		e := Entry{Name: f.Name}
		if fs.inodes {
			e.Ino = f.Ino
		}
		if k, ok := known[f.Name]; ok && k.Ino == e.Ino && e.Ino != 0 {
			list = append(list, k)
			return
		}
		var err error
		e.Name = strings.Clone(e.Name)
		e.Path, err = fs.device(dir, f.Name)
		if err == nil {
			list = append(list, e)
		} else if !Gone(err) && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, err)
		}
	})
	if err != nil {
		return nil, err
	}
	return list, errors.Join(errs...)
}

// names lists a directory.
func (fs FS) names(dir string) ([]string, error) {
	var names []string
	err := dirents.Read(fs.abs(dir), func(f dirents.Entry) {
		names = append(names, f.Name)
	})
	return names, err
}

// device returns the target of the link dir/name, a device directory.
func (fs FS) device(dir, name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := fs.readlink(dir, name, buf[:])
	if err != nil {
		return "", fmt.Errorf("%s/%s: %w", dir, name, err)
	}
	target := string(buf[:n])
	p := strings.TrimLeft(target, "./")
	// The kernel writes such links relative to the root, "../../devices/…", without a
	// link on the path.
	if !strings.HasPrefix(p, "devices/") || strings.HasPrefix(target, "/") {
		return "", fmt.Errorf("%s/%s: leads to %q, not below devices", dir, name, target)
	}
	if strings.Contains(p, "/.") {
		p = path.Clean(p)
	}
	fs.trace.link(dir, name, buf[:n])
	return p, nil
}

func (fs FS) readlink(dir, name string, buf []byte) (int, error) {
	fd, file := fs.at(dir, name)
	return dirents.Retry(func() (int, error) {
		return unix.Readlinkat(fd, file, buf)
	})
}

// read reads the start of a file with three system calls. os.ReadFile makes twice as
// many, and a scan reads thousands of attributes. One read is sufficient: the kernel
// formats a text attribute as a whole.
func (fs FS) read(dir, name string, buf []byte) (int, error) {
	in, file := fs.at(dir, name)
	fd, err := dirents.Retry(func() (int, error) {
		return unix.Openat(in, file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n, err := dirents.Retry(func() (int, error) {
		return unix.Read(fd, buf)
	})
	if err != nil {
		return 0, err
	}
	fs.trace.attr(dir, name, buf[:n])
	return n, nil
}

// clean makes an attribute safe to print and to use as a label: without its final
// newline and control characters, always valid UTF-8. Strings of USB devices are
// arbitrary.
func clean(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return strings.Map(func(r rune) rune {
				if unicode.IsControl(r) {
					return -1
				}
				return r
			}, strings.ToValidUTF8(string(b), "\uFFFD"))
		}
	}
	return string(b)
}

// Trace is what was read below a root, by path relative to it: a tree with only these
// files reads the same.
type Trace struct {
	// Attrs are the contents of attributes, as the kernel gave them.
	Attrs map[string]string
	// Links are the targets of links.
	Links map[string]string
	// Dirs are existing directories. Other entries of listed directories are not kept.
	Dirs map[string]bool
}

// Trace returns a tree that records its reads, and a function that returns the
// recording. Both are safe for concurrent use.
func (fs FS) Trace() (traced FS, trace func() Trace) {
	t := &tracer{kept: Trace{Attrs: make(map[string]string), Links: make(map[string]string), Dirs: make(map[string]bool)}}
	fs.trace = t
	return fs, t.trace
}

// tracer records a trace; nil does not record.
type tracer struct {
	mu   sync.Mutex
	kept Trace
}

func (t *tracer) trace() Trace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Trace{Attrs: maps.Clone(t.kept.Attrs), Links: maps.Clone(t.kept.Links), Dirs: maps.Clone(t.kept.Dirs)}
}

func (t *tracer) attr(dir, name string, content []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.Attrs[dir+"/"+name] = string(content)
}

func (t *tracer) link(dir, name string, target []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.Links[dir+"/"+name] = string(target)
}

func (t *tracer) dir(dir string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.Dirs[dir] = true
}
