package sysfs

import (
	"errors"
	iofs "io/fs"
	"slices"
)

// Holders lists the block devices that are made of a disk or a partition, by
// name: of the device mapper, of md, of bcache
// (Documentation/ABI/stable/sysfs-block).
func (fs FS) Holders(dir string) ([]string, error) {
	dir += "/holders"
	names, err := fs.names(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	var holders []string
	errs := []error{err}
	for _, name := range names {
		holder, err := fs.linkBase(dir, name)
		if holder != "" {
			holders = append(holders, holder)
		}
		errs = append(errs, err)
	}
	slices.Sort(holders)
	return holders, errors.Join(errs...)
}

const fsBtrfs = "fs/btrfs"

// Btrfs lists the block devices that mounted file systems of type btrfs are
// on. No mount says all of them: such a file system has a device number of
// its own, and any number of devices (fs/btrfs/sysfs.c).
func (fs FS) Btrfs() ([]Entry, error) {
	systems, err := fs.names(fsBtrfs)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	var list []Entry
	errs := []error{err}
	for _, uuid := range systems {
		devices, err := fs.entries(fsBtrfs + "/" + uuid + "/devices")
		if !errors.Is(err, iofs.ErrNotExist) {
			errs = append(errs, err)
		}
		list = append(list, devices...)
	}
	return list, errors.Join(errs...)
}
