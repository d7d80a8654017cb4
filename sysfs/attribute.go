package sysfs

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxHops is how many links the path of an attribute may lead through, the
// kernel's own limit (MAXSYMLINKS in include/linux/namei.h).
const maxHops = 40

// FindAttribute returns the path of the attribute that name means below dir,
// relative to the root. The name may have path elements, and in each the
// wildcards "*", "?", "[a-z]" and "[!a-z]": the first path in sorted order
// that is there counts. It may lead through links, "device/vendor", but not
// out of the root; what it returns leads through none. ino is its inode, which no
// attribute of another device has.
//
// Nothing is opened, so it never waits for a device.
func (fs FS) FindAttribute(dir, name string) (file string, ino uint64, found bool) {
	elems := strings.Split(name, "/")
	if slices.ContainsFunc(elems, func(e string) bool { return e == "" || e == "." || e == ".." }) {
		return "", 0, false
	}
	return fs.find(dir, elems)
}

func (fs FS) find(dir string, elems []string) (file string, ino uint64, found bool) {
	for _, name := range fs.match(dir, elems[0]) {
		if len(elems) == 1 && isNamingLink(name) {
			if kind, ino := fs.lstat(dir + "/" + name); kind == unix.S_IFLNK {
				return dir + "/" + name, ino, true
			}
		}
		p, kind, ino := fs.follow(dir, name)
		switch {
		case len(elems) == 1 && kind == unix.S_IFREG:
			return p, ino, true
		case len(elems) > 1 && kind == unix.S_IFDIR:
			if file, ino, found := fs.find(p, elems[1:]); found {
				return file, ino, true
			}
		}
	}
	return "", 0, false
}

// isNamingLink reports whether name is that of a link that is an attribute: it
// says what the device has by the name of what it leads to. udev reads these
// three so, too (sd_device_get_sysattr_value of systemd); others, such as the
// link "device", are no attributes and hide none of the same name further up.
func isNamingLink(name string) bool {
	return name == "driver" || name == "subsystem" || name == "module"
}

// match returns what of a directory a name with or without wildcards means.
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

// follow returns what dir/name leads to, by a path without links, its type and its
// inode; type 0 is nothing, and what leads out of the root.
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
			n, err := readlink(fs.abs(next), buf[:])
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

// lstat returns the type of what is at p as stat(2) says it, 0 for nothing, and its
// inode.
func (fs FS) lstat(p string) (kind uint32, ino uint64) {
	var st unix.Stat_t
	if retry(func() error { return unix.Lstat(fs.abs(p), &st) }) != nil {
		return 0, 0
	}
	return st.Mode & unix.S_IFMT, st.Ino
}

// Attribute reads an attribute that somebody else names, by the path that
// FindAttribute returned. It is as safe to print as any other and at most a
// page long. The links driver, subsystem and module are read as the last
// element of where they lead.
//
// Whoever names it is to know what the kernel does when it is read. Some wait
// for the device: it may take as long as it likes. An error that Gone knows
// says that the attribute is no longer there.
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
