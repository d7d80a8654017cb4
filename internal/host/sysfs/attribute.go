package sysfs

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxLinks is the maximum number of links in a path, the kernel's own limit (MAXSYMLINKS in
// include/linux/namei.h).
const MaxLinks = 40

// File is the file of an attribute: its path relative to the root, and its inode. Attributes of
// different devices have different inodes.
type File struct {
	Path string
	Ino  uint64
}

// isNamingLink reports whether name is a link that is an attribute: the name of its target is the
// value. udev treats the same links as attributes, except for iommu_group, whose target has a number as
// its name (sd_device_get_sysattr_value of systemd). Other
// links, such as "device", are not attributes and do not hide an attribute of the same name in a
// directory above.
func isNamingLink(name string) bool {
	switch name {
	case "driver", "subsystem", "module", "iommu_group":
		return true
	}
	return false
}

// Follow replaces the links on the way to a file, and the file itself, by their targets. rest is the path of
// the file below the directory at, which has no links. link returns the target of a link as written, and
// false for other files. An absolute target begins at "/". ok is false if there are too many links.
func Follow(at, rest string, link func(p string) (target string, isLink bool)) (p string, ok bool) {
	for hops := 0; rest != ""; {
		elem, after, _ := strings.Cut(rest, "/")
		rest = after
		next := path.Join(at, elem)
		target, isLink := link(next)
		if !isLink {
			at = next
			continue
		}
		hops++
		if hops > MaxLinks {
			return "", false
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + rest
	}
	return at, true
}

// follow returns the target of dir/name as a path without links, its type and its inode. The type is
// 0 if the target is missing or outside of the root.
func (fs FS) follow(dir, name string) (p string, kind uint32, ino uint64) {
	isOutside := false
	p, ok := Follow(dir, name, func(p string) (target string, isLink bool) {
		isOutside = isOutside || p == ".."
		if isOutside {
			return "", false
		}
		kind, ino = fs.lstat(p)
		if kind != unix.S_IFLNK {
			return "", false
		}
		target = fs.targetInside(p)
		isOutside = target == ""
		return target, !isOutside
	})
	if !ok || isOutside {
		return "", 0, 0
	}
	return p, kind, ino
}

// targetInside returns the target of a link as written. It is empty if the link can't be
// read or points out of the root.
func (fs FS) targetInside(link string) string {
	var buf [unix.PathMax]byte
	dir := path.Dir(link)
	name := path.Base(link)
	n, err := fs.readlink(dir, name, buf[:])
	if err != nil {
		return ""
	}
	target := string(buf[:n])
	if path.IsAbs(target) || strings.HasPrefix(path.Join(dir, target), "..") {
		return ""
	}
	fs.trace.link(dir, name, buf[:n])
	return target
}

// lstat returns the type of p as in the mode of stat(2), and its inode. The type is 0 if p is missing.
func (fs FS) lstat(p string) (kind uint32, ino uint64) {
	st := fs.stat(p)
	return st.Mode & unix.S_IFMT, st.Ino
}

// stat returns the status of p, which is zero if p is missing. It follows no link.
func (fs FS) stat(p string) unix.Stat_t {
	var st unix.Stat_t
	_, err := retry(func() (int, error) {
		return 0, unix.Lstat(fs.abs(p), &st)
	})
	if err != nil {
		return unix.Stat_t{}
	}
	return st
}

// Attribute reads an attribute that the configuration names, by the path from FindAttributes. The value
// is safe to print and not longer than a page. The value of a link such as driver is
// the last element of its target.
//
// Only attributes that everybody may read are read: the program is root, and write access to the
// configuration must not give the secrets of the host, such as the DH-HMAC-CHAP keys of NVMe.
//
// The read may block: some attributes wait until the device responds. Gone reports whether the error
// means that the attribute was removed.
func (fs FS) Attribute(file string) (string, error) {
	dir := path.Dir(file)
	name := path.Base(file)
	st := fs.stat(file)
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK && isNamingLink(name) {
		d := fs.Dir(dir)
		return d.LinkBase(name), d.Err()
	}
	// A missing file is reported by the read.
	isPublic := st.Mode&unix.S_IROTH != 0
	if kind != 0 && !isPublic {
		return "", errNotPublic
	}
	var buf [maxAttr]byte
	n, err := fs.read(dir, name, buf[:])
	if err != nil {
		return "", err
	}
	return clean(buf[:n]), nil
}

var errNotPublic = errors.New("only attributes that everybody may read are read")
