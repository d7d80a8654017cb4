package sysfs

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxFiles is the maximum number of files that a name with wildcards finds.
const maxFiles = 64

// physicalFunction is the link from a virtual PCI function to the function that it is a part of
// (sysfs_create_link in drivers/pci/iov.c).
const physicalFunction = "physfn"

// FindAttributes returns the files of the attribute name below dir. The name may have
// path elements, with the wildcards "*", "?", "[a-z]" and "[!a-z]" in each: the result is
// in sorted order.
//
// An element without wildcards may be a link, "physfn/vendor", that stays below the root.
// The result contains no links. Wildcards match no links. They only search the device's own
// directory top, at or above dir, and the devices that contain this device, to which the links
// "device" and "physfn" point. Otherwise "subsystem/devices/*/subsystem" would repeatedly lead
// from one device to all others.
//
// The search ends at the time until. complete is not set then, and the result may lack files.
//
// FindAttributes opens no file, so that it never waits for a device.
func (fs FS) FindAttributes(top, dir, name string, until time.Time) (found []File, complete bool) {
	elements := strings.Split(name, "/")
	for _, invalid := range []string{"", ".", ".."} {
		if slices.Contains(elements, invalid) {
			return nil, true
		}
	}
	s := search{
		fs:       fs,
		start:    dir,
		devices:  []string{top},
		elements: elements,
		until:    until,
	}
	s.find(dir, 0)
	return s.found, !s.isOver
}

// search is one call of FindAttributes.
type search struct {
	fs       FS
	start    string
	elements []string
	found    []File
	until    time.Time
	isOver   bool
	// devices are the directories that wildcards may search, beside those above start.
	devices []string
	// searched are the directories that were searched, each with the index of an element. Without
	// it, a link to a directory above, such as "device", would repeat their search.
	searched map[searchedDir]bool
}

type searchedDir struct {
	dir     string
	element int
}

// find adds the files below dir that match the elements from index i.
func (s *search) find(dir string, i int) {
	name := s.elements[i]
	if !strings.ContainsAny(name, `*?[\`) {
		s.lookUp(dir, name, i)
		return
	}
	s.isOver = s.isOver || time.Now().After(s.until)
	if s.isOver {
		return
	}
	here := searchedDir{dir, i}
	if !s.mayList(dir) || s.searched[here] {
		return
	}
	if s.searched == nil {
		s.searched = make(map[searchedDir]bool)
	}
	s.searched[here] = true
	s.list(dir, i)
}

// lookUp follows the element with index i, a name without wildcards.
func (s *search) lookUp(dir, name string, i int) {
	isLast := i == len(s.elements)-1
	if isLast && isNamingLink(name) {
		kind, ino := s.fs.lstat(dir + "/" + name)
		if kind == unix.S_IFLNK {
			s.add(dir+"/"+name, ino)
			return
		}
	}
	p, kind, ino := s.fs.follow(dir, name)
	if name == physicalFunction && kind == unix.S_IFDIR {
		s.devices = append(s.devices, p)
	}
	if isLast && kind == unix.S_IFREG {
		s.add(p, ino)
	} else if !isLast && kind == unix.S_IFDIR {
		s.find(p, i+1)
	}
}

// mayList reports whether wildcards may search a directory: a directory of the device, or of a device
// above it. Directories such as "devices/platform" are not devices.
func (s *search) mayList(dir string) bool {
	isAbove := isWithin(s.start, dir) && strings.Count(dir, "/") > 1
	return isAbove || slices.ContainsFunc(s.devices, func(top string) bool {
		return isWithin(dir, top)
	})
}

// isWithin reports whether p is top or below top.
func isWithin(p, top string) bool {
	rest, found := strings.CutPrefix(p, top)
	return found && (rest == "" || rest[0] == '/')
}

// list follows the element with index i, which has wildcards.
func (s *search) list(dir string, i int) {
	entries := s.match(dir, s.elements[i])
	isLast := i == len(s.elements)-1
	for _, e := range entries {
		if len(s.found) == maxFiles {
			return
		}
		p := dir + "/" + e.Name()
		isFile := e.Type().IsRegular()
		isValue := isFile || e.Type() == fs.ModeSymlink && isNamingLink(e.Name())
		if isLast && isValue {
			_, ino := s.fs.lstat(p)
			s.add(p, ino)
		} else if !isLast && e.IsDir() {
			s.find(p, i+1)
		}
	}
}

func (s *search) add(p string, ino uint64) {
	s.found = append(s.found, File{Path: p, Ino: ino})
}

// match returns the entries of a directory whose names match a pattern, sorted. An unreadable
// directory has no entries.
func (s *search) match(dir, name string) []fs.DirEntry {
	entries, err := os.ReadDir(s.fs.abs(dir))
	if err != nil {
		return nil
	}
	pattern := strings.ReplaceAll(name, "[!", "[^")
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		matches, err := path.Match(pattern, e.Name())
		return !matches || err != nil
	})
}
