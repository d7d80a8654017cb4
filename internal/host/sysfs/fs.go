// Package sysfs reads files, links and directories below /sys, without knowledge of devices.
//
// Callers name each attribute that they read, because sysfs has files that wait for the device, that take its
// lock, or that act when they are read. A directory is given by its path relative to the root,
// "devices/pci0000:00". Uevents use the same path with a leading slash. A missing attribute is not an error: its
// value is an empty string, or -1 if it is a number.
package sysfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// FS reads one sysfs tree.
type FS struct {
	root string
	// magic is the type of the file system, as in statfs(2).
	magic uint32
	// trace records reads. It is nil for a tree that does not record.
	trace *tracer
}

// New returns the tree below root: "/sys", another mount point of the host's sysfs, or a recording.
func New(root string) FS {
	var st unix.Statfs_t
	_ = unix.Statfs(root, &st) // Check reports a missing root
	return FS{root: root, magic: uint32(st.Type)}
}

// IsKernel reports whether the tree is a sysfs of this kernel, and not a recording.
func (fs FS) IsKernel() bool { return fs.magic == unix.SYSFS_MAGIC }

// HasInodes reports whether the file system does not reuse inode numbers, at least for billions of
// files. Then the same name and inode mean the same file. Kernel file systems count inodes
// (__kernfs_new_node in fs/kernfs/dir.c, shmem_reserve_inode in mm/shmem.c, get_next_ino in
// fs/inode.c). File systems on disks reuse free numbers.
func (fs FS) HasInodes() bool {
	switch fs.magic {
	case unix.SYSFS_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return true
	}
	return false
}

// retry repeats a system call while signals interrupt it (EINTR in signal(7)). The Go runtime sends
// signals to preempt goroutines.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// maxAttr is the maximum size of an attribute, in bytes: the kernel formats a text
// attribute into one page (Documentation/filesystems/sysfs.rst).
const maxAttr = 4096

// Entry is one symbolic link of a directory such as bus/pci/devices: the name of a
// Device and its directory.
type Entry struct {
	Name string
	Path string
	// Ino is the inode of the link, see FS.Inode. It is 0 unless the caller has read it.
	Ino uint64
}

// Check returns an error unless the root is a sysfs tree. It distinguishes a host
// without devices from a missing or unmounted root.
func (fs FS) Check() error {
	for _, dir := range []string{"devices", "dev"} {
		fi, err := os.Stat(fs.abs(dir))
		if err != nil {
			return fmt.Errorf("--sysfs: %q is not a sysfs tree: %w", fs.root, err)
		}
		if !fi.IsDir() {
			return fmt.Errorf("--sysfs: %q is not a sysfs tree: %q is not a directory", fs.root, dir)
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

// Gone reports whether err means that a device was removed while it was read. A read in a removed
// directory fails with ENOENT, and a read of an open attribute with ENODEV (kernfs_get_active in
// fs/kernfs/file.c).
func Gone(err error) bool {
	for _, gone := range []unix.Errno{unix.ENOENT, unix.ENODEV, unix.ENXIO} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// ErrGone is the error of a removed device.
const ErrGone = unix.ENODEV

func (fs FS) abs(rel string) string { return fs.root + "/" + rel }

// LinksWith returns the targets of the links in dir whose names begin with a prefix, as directories, by
// the rest of the name. It returns the readable links and the errors of the others.
func (fs FS) LinksWith(dir, prefix string) (map[string]string, error) {
	names, err := fs.Names(dir)
	d := fs.Dir(dir)
	targets := make(map[string]string)
	for _, name := range names {
		rest, hasPrefix := strings.CutPrefix(name, prefix)
		if !hasPrefix {
			continue
		}
		target := d.Link(name)
		if target != "" {
			targets[rest] = path.Join(dir, target)
		}
	}
	return targets, errors.Join(err, d.Err())
}

// Entries reads a directory of links to devices, in no order and without inodes. It leaves out links that are
// removed meanwhile, and other files, such as bonding_masters in class/net. The error reports unreadable links. It
// wraps fs.ErrNotExist if the kernel does not have the directory.
func (fs FS) Entries(dir string) ([]Entry, error) {
	names, err := fs.Names(dir)
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, len(names))
	var errs []error
	for _, name := range names {
		target, err := fs.Device(dir, name)
		if err == nil {
			list = append(list, Entry{Name: name, Path: target})
			continue
		}
		isNoLink := errors.Is(err, unix.EINVAL)
		if !isNoLink && !Gone(err) {
			errs = append(errs, err)
		}
	}
	return list, errors.Join(errs...)
}

// Inode returns the inode of the link dir/name. The kernel makes the link when a device is added (bus_add_device
// in drivers/base/bus.c), so that an equal inode means the same device. It is 0 in a tree whose file system
// reuses inodes. It must be read after the target of the link, so that a new link never has the inode of its
// predecessor, and before what is remembered by it.
func (fs FS) Inode(dir, name string) uint64 {
	if !fs.HasInodes() {
		return 0
	}
	_, ino := fs.lstat(dir + "/" + name)
	return ino
}

// Names lists a directory, in no order.
func (fs FS) Names(dir string) ([]string, error) {
	f, err := os.OpenFile(fs.abs(dir), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Device returns the target of the link dir/name, a device directory.
func (fs FS) Device(dir, name string) (string, error) {
	var buf [unix.PathMax]byte
	n, err := fs.readlink(dir, name, buf[:])
	if err != nil {
		return "", fmt.Errorf("%s/%s: %w", dir, name, err)
	}
	target := string(buf[:n])
	// The kernel writes such links relative to the root, "../../devices/…", without a
	// link on the path.
	p := strings.TrimLeft(target, "./")
	isAbsolute := strings.HasPrefix(target, "/")
	if isAbsolute || !strings.HasPrefix(p, "devices/") {
		return "", fmt.Errorf("%s/%s: points to %q, which is not below devices", dir, name, target)
	}
	if strings.Contains(p, "/.") {
		p = path.Clean(p)
	}
	fs.trace.link(dir, name, buf[:n])
	return p, nil
}

func (fs FS) readlink(dir, name string, buf []byte) (int, error) {
	return retry(func() (int, error) {
		return unix.Readlink(fs.abs(dir+"/"+name), buf)
	})
}

// Text reads the start of an attribute that may have several lines. A missing attribute is an error.
func (fs FS) Text(dir, name string) (string, error) {
	var buf [maxAttr]byte
	n, err := fs.read(dir, name, buf[:])
	return string(buf[:n]), err
}

// read reads the start of a file with three system calls. os.ReadFile makes twice as
// many, and a scan reads thousands of attributes. One read is sufficient, because the kernel
// formats a text attribute as a whole.
func (fs FS) read(dir, name string, buf []byte) (int, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := retry(func() (int, error) {
		return unix.Open(fs.abs(dir+"/"+name), flags, 0)
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n, err := retry(func() (int, error) {
		return unix.Read(fd, buf)
	})
	if err != nil {
		return 0, err
	}
	fs.trace.attr(dir, name, buf[:n])
	return n, nil
}

// clean makes an attribute safe to print and to use as a label: valid UTF-8 without the final
// newline and control characters. A USB device may report any bytes as its strings.
func clean(b []byte) string {
	text := strings.TrimSuffix(string(b), "\n")
	if device.IsPrintableASCII(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
