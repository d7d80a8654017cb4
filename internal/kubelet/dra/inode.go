package dra

import (
	"io/fs"
	"syscall"
)

// inode returns the inode of a file, 0 if it is unknown.
func inode(info fs.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Ino
}
