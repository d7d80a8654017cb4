package sysfs

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sys/dirents"
)

// maxHops is the maximum number of links in the path of an attribute, the kernel's own
// limit (MAXSYMLINKS in include/linux/namei.h).
const maxHops = 40

// maxFiles is the maximum number of files that a name with wildcards finds.
const maxFiles = 64

// File is the file of an attribute: its path relative to the root, and its inode, which
// no attribute of another device has.
type File struct {
	Path string
	Ino  uint64
}

// FindAttributes returns the files of the attribute name below dir. The name may have
// path elements, with the wildcards "*", "?", "[a-z]" and "[!a-z]" in each: the result is
// in sorted order. It may lead through links, "device/vendor", but not out of the root;
// the result contains no links.
//
// It opens no file, so that it never waits for a device.
func (fs FS) FindAttributes(dir, name string) []File {
	elems := strings.Split(name, "/")
	if slices.ContainsFunc(elems, func(e string) bool { return e == "" || e == "." || e == ".." }) {
		return nil
	}
	return fs.find(nil, dir, elems)
}

func (fs FS) find(found []File, dir string, elems []string) []File {
	for _, name := range fs.match(dir, elems[0]) {
		if len(found) == maxFiles {
			break
		}
		if len(elems) == 1 && isNamingLink(name) {
			if kind, ino := fs.lstat(dir + "/" + name); kind == unix.S_IFLNK {
				found = append(found, File{dir + "/" + name, ino})
				continue
			}
		}
		p, kind, ino := fs.follow(dir, name)
		switch {
		case len(elems) == 1 && kind == unix.S_IFREG:
			found = append(found, File{p, ino})
		case len(elems) > 1 && kind == unix.S_IFDIR:
			found = fs.find(found, p, elems[1:])
		}
	}
	return found
}

// isNamingLink reports whether name is a link that is an attribute: the name of its
// target is the value. udev treats these three the same (sd_device_get_sysattr_value of
// systemd); others, such as the link "device", are no attributes and hide none of the
// same name further up.
func isNamingLink(name string) bool {
	return name == "driver" || name == "subsystem" || name == "module"
}

// match lists the entries of a directory that match a name with or without wildcards.
func (fs FS) match(dir, name string) []string {
	if !strings.ContainsAny(name, `*?[\`) {
		return []string{name}
	}
	pattern := strings.ReplaceAll(name, "[!", "[^")
	names, err := fs.names(dir)
	if err != nil {
		return nil
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		ok, err := path.Match(pattern, n)
		return !ok || err != nil
	})
	slices.Sort(names)
	return names
}

// follow returns the target of dir/name, by a path without links, its type and its
// inode; type 0 is a missing one or one outside of the root.
func (fs FS) follow(dir, name string) (p string, kind uint32, ino uint64) {
	at, rest := dir, name
	for hops := 0; ; {
		var elem string
		elem, rest, _ = strings.Cut(rest, "/")
		next := path.Join(at, elem)
		if next == ".." {
			return "", 0, 0
		}
		kind, ino := fs.lstat(next)
		if kind == unix.S_IFLNK {
			var buf [unix.PathMax]byte
			n, err := fs.readlink(path.Dir(next), path.Base(next), buf[:])
			target := string(buf[:n])
			if hops++; err != nil || hops > maxHops || path.IsAbs(target) || strings.HasPrefix(path.Join(at, target), "..") {
				return "", 0, 0
			}
			fs.trace.link(path.Dir(next), path.Base(next), buf[:n])
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

// lstat returns the type of p like stat(2), 0 if it is missing, and its inode.
func (fs FS) lstat(p string) (kind uint32, ino uint64) {
	var st unix.Stat_t
	if _, err := dirents.Retry(func() (int, error) { return 0, unix.Lstat(fs.abs(p), &st) }); err != nil {
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
	dir, name := path.Dir(file), path.Base(file)
	if isNamingLink(name) {
		if kind, _ := fs.lstat(file); kind == unix.S_IFLNK {
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
