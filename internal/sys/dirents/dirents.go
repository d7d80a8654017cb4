// Package dirents lists directories with the inodes and types of their entries. It needs no system call
// per entry.
package dirents

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Entry is one entry of a directory.
type Entry struct {
	// Name is the last element of the path.
	Name string
	// Ino is the inode. For a mount point, it is the inode of the directory below the mount.
	Ino uint64
	// Type is the type of the file, without permissions.
	Type fs.FileMode
}

// Read calls each for the entries of dir, in the order of the kernel. If it returns an error, it has
// called each for the entries before the error. The names of several hundred entries share one
// allocation. Unlike os.Open, Read does not register the directory with the runtime's poller, which
// saves half of the system calls. The error is an *fs.PathError.
func Read(dir string, each func(Entry)) error {
	fd, err := Retry(func() (int, error) {
		return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var buf [8192]byte
	for {
		n, err := Retry(func() (int, error) {
			return unix.ReadDirent(fd, buf[:])
		})
		if err != nil {
			return &os.PathError{Op: "readdirent", Path: dir, Err: err}
		}
		if n <= 0 {
			return nil
		}
		if err := parse(dir, buf[:n], each); err != nil {
			return err
		}
	}
}

// parse parses records of struct linux_dirent64 (getdents64(2)): inode, offset, length of the record,
// type, NUL-terminated name. If the file system does not report the type of an entry, parse reads it
// by lstat(2). It leaves out entries that were removed meanwhile.
func parse(dir string, buf []byte, each func(Entry)) error {
	const lengthAt, typeAt, nameAt = 16, 18, 19
	names := string(buf)
	for len(buf) > nameAt {
		length := int(binary.NativeEndian.Uint16(buf[lengthAt:]))
		if length <= nameAt || length > len(buf) {
			return nil
		}
		name, _, _ := strings.Cut(names[nameAt:length], "\x00")
		e := Entry{
			Name: name,
			Ino:  binary.NativeEndian.Uint64(buf),
			Type: mode(buf[typeAt]),
		}
		buf = buf[length:]
		names = names[length:]
		// os.ReadDir also skips entries without an inode.
		isRemoved := e.Ino == 0
		isSelfOrParent := name == "." || name == ".."
		if isRemoved || isSelfOrParent {
			continue
		}
		if e.Type == fs.ModeIrregular {
			info, err := os.Lstat(dir + "/" + name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			e.Type = info.Mode().Type()
		}
		each(e)
	}
	return nil
}

// mode returns the type of a file. fs.ModeIrregular means that the file system does not report it
// (DT_UNKNOWN).
func mode(t byte) fs.FileMode {
	switch t {
	case unix.DT_REG:
		return 0
	case unix.DT_DIR:
		return fs.ModeDir
	case unix.DT_LNK:
		return fs.ModeSymlink
	case unix.DT_CHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.DT_BLK:
		return fs.ModeDevice
	case unix.DT_FIFO:
		return fs.ModeNamedPipe
	case unix.DT_SOCK:
		return fs.ModeSocket
	}
	return fs.ModeIrregular
}

// CountsInodes reports whether the file system of a path does not reuse inode numbers, at least for
// billions of files. Then the same name and inode mean the same file. Kernel file systems count inodes
// (__kernfs_new_node in fs/kernfs/dir.c, shmem_reserve_inode in mm/shmem.c, get_next_ino in
// fs/inode.c; devtmpfs uses one of the latter two). File systems on disks reuse free numbers.
func CountsInodes(path string) bool {
	switch FSType(path) {
	case unix.SYSFS_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return true
	}
	return false
}

// FSType returns the magic number of the file system of a path (statfs(2)), or 0 if the path is
// missing.
func FSType(path string) uint32 {
	var st unix.Statfs_t
	_, err := Retry(func() (int, error) {
		return 0, unix.Statfs(path, &st)
	})
	if err != nil {
		return 0
	}
	return uint32(st.Type)
}

// Retry repeats a system call while signals interrupt it (EINTR in signal(7)). The Go runtime sends
// signals to preempt goroutines.
func Retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
