package sysfs

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/dirents"
)

// maxHops is the maximum number of links in the path of an attribute, the kernel's own
// limit (MAXSYMLINKS in include/linux/namei.h).
const maxHops = 40

// File is the file of an attribute: its path relative to the root, and its inode, which
// no attribute of another device has.
type File struct {
	Path string
	Ino  uint64
}

// isNamingLink reports whether name is a link that is an attribute: the name of its
// target is the value. udev treats these three the same (sd_device_get_sysattr_value of
// systemd); others, such as the link "device", are no attributes and hide none of the
// same name further up.
func isNamingLink(name string) bool {
	return name == "driver" || name == "subsystem" || name == "module"
}

// follow returns the target of dir/name, by a path without links, its type and its
// inode; type 0 is a missing one or one outside of the root.
func (fs FS) follow(dir, name string) (p string, kind uint32, ino uint64) {
	at := dir
	rest := name
	hops := 0
	for {
		elem, after, _ := strings.Cut(rest, "/")
		rest = after
		next := path.Join(at, elem)
		if next == ".." {
			return "", 0, 0
		}
		kind, ino := fs.lstat(next)
		if kind == unix.S_IFLNK {
			hops++
			target := fs.targetInside(at, next)
			if target == "" || hops > maxHops {
				return "", 0, 0
			}
			rest = strings.TrimSuffix(target+"/"+rest, "/")
			continue
		}
		if rest == "" {
			return next, kind, ino
		}
		if kind != unix.S_IFDIR {
			return "", 0, 0
		}
		at = next
	}
}

// targetInside returns the target of a link as written. It is empty if the link can't be
// read, or leads out of the root.
func (fs FS) targetInside(at, link string) string {
	var buf [unix.PathMax]byte
	dir, name := path.Split(link)
	dir = path.Clean(dir)
	n, err := fs.readlink(dir, name, buf[:])
	if err != nil {
		return ""
	}
	target := string(buf[:n])
	if path.IsAbs(target) || strings.HasPrefix(path.Join(at, target), "..") {
		return ""
	}
	fs.trace.link(dir, name, buf[:n])
	return target
}

// lstat returns the type of p like stat(2), 0 if it is missing, and its inode.
func (fs FS) lstat(p string) (kind uint32, ino uint64) {
	var st unix.Stat_t
	if _, err := dirents.Retry(func() (int, error) {
		return 0, unix.Lstat(fs.abs(p), &st)
	}); err != nil {
		return 0, 0
	}
	return st.Mode & unix.S_IFMT, st.Ino
}

// Attribute reads an attribute that the configuration names, by the path from
// FindAttributes. The value is as safe to print as any other and at most a page long.
// The links driver, subsystem and module are read as the last element of their targets.
//
// The caller must know what the kernel does on a read: some attributes block until the
// device responds. An error that Gone reports is a removed attribute.
func (fs FS) Attribute(file string) (string, error) {
	dir := path.Dir(file)
	name := path.Base(file)
	if isNamingLink(name) {
		kind, _ := fs.lstat(file)
		if kind == unix.S_IFLNK {
			return fs.linkBase(dir, name)
		}
	}
	var buf [maxAttr]byte
	n, err := fs.read(dir, name, buf[:])
	if err != nil {
		return "", err
	}
	return clean(buf[:n]), nil
}
