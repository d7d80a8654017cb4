package sysfs

import (
	"strconv"
)

// The directories of device numbers. Every kobject with a device number has a link
// there (device_create_sys_dev_entry in drivers/base/core.c), so that they contain
// every node of the kernel, of any class.
const (
	devChar  = "dev/char"
	devBlock = "dev/block"
)

// CharDev returns the device directory of a character device number, "" if the kernel
// has none.
func (fs FS) CharDev(major, minor uint32) (string, error) { return fs.devNumber(devChar, major, minor) }

// BlockDev does the same for a block device number.
func (fs FS) BlockDev(major, minor uint32) (string, error) {
	return fs.devNumber(devBlock, major, minor)
}

func (fs FS) devNumber(dir string, major, minor uint32) (string, error) {
	var buf [24]byte
	b := strconv.AppendUint(buf[:0], uint64(major), 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(minor), 10)
	p, err := fs.device(dir, string(b))
	if Gone(err) {
		return "", nil
	}
	return p, err
}
