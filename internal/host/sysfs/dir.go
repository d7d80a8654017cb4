package sysfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir reads the attributes of one device. What can't be read is empty, or -1, and Err has the reasons.
type Dir struct {
	// Path is the directory.
	Path string
	fs   FS
	errs []error
}

// Dir returns a reader of a directory.
func (fs FS) Dir(path string) *Dir { return &Dir{Path: path, fs: fs} }

// Err returns the errors of all reads so far. They wrap the kernel's errors and name the attributes.
func (d *Dir) Err() error { return errors.Join(d.errs...) }

// failed adds the error of an attribute.
func (d *Dir) failed(name string, err error) {
	d.errs = append(d.errs, fmt.Errorf("%s: %w", name, err))
}

// Attr reads one attribute, without its newline and control characters.
func (d *Dir) Attr(name string) string {
	var buf [maxAttr]byte
	n, err := d.fs.read(d.Path, name, buf[:])
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return ""
	}
	if err != nil {
		d.failed(name, err)
		return ""
	}
	return clean(buf[:n])
}

// Number reads a decimal number.
func (d *Dir) Number(name string) int {
	s := d.Attr(name)
	if s == "" {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		d.failed(name, fmt.Errorf("%q is not a number", s))
		return -1
	}
	return n
}

// HexNumber reads a number such as "0x1f".
func (d *Dir) HexNumber(name string) int {
	s := d.Attr(name)
	if s == "" {
		return -1
	}
	digits := strings.TrimPrefix(strings.TrimSpace(s), "0x")
	n, err := strconv.ParseUint(digits, 16, 31)
	if err != nil {
		d.failed(name, fmt.Errorf("%q is not a hexadecimal number", s))
		return -1
	}
	return int(n)
}

// Link reads the target of a link as written.
func (d *Dir) Link(name string) string {
	var buf [unix.PathMax]byte
	n, err := d.fs.readlink(d.Path, name, buf[:])
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.EINVAL {
		return ""
	}
	if err != nil {
		d.failed(name, err)
		return ""
	}
	d.fs.trace.link(d.Path, name, buf[:n])
	return string(buf[:n])
}

// LinkBase reads the last element of the target of a link, the name of a driver, subsystem or group.
func (d *Dir) LinkBase(name string) string {
	target := d.Link(name)
	return target[strings.LastIndexByte(target, '/')+1:]
}
