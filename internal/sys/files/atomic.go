package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MaxSize is the maximum size of a file that Write makes, in bytes.
const MaxSize = 8 << 20

// TempSuffix is appended to the name of a file for the temporary file next to it. The name is fixed, so
// that a crash leaves at most one temporary file, which the next Write replaces.
const TempSuffix = ".tmp"

// Read reads a regular file of at most limit bytes, or a link to such a file. For all other files it
// returns an error, because they may block, have no end, or act when they are opened. It reads at most
// the size that stat(2) returns. That is 0 for the files of procfs, some of which block.
func Read(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	// A FIFO that replaced the file must not block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Another file may be at the path by now.
	info, err = f.Stat()
	if err == nil {
		err = check(path, info, limit)
	}
	if err != nil {
		return nil, err
	}
	// The size was checked, so the allocation is bounded.
	data := make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	// A file that became shorter meanwhile is read as it is now.
	wasTruncated := err == io.EOF || err == io.ErrUnexpectedEOF
	if wasTruncated {
		err = nil
	}
	return data[:n], err
}

// ReadJSON decodes a file of at most limit bytes, see Read.
func ReadJSON(path string, limit int64, into any) error {
	text, err := Read(path, limit)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// check returns an error unless a file is regular and has at most limit bytes.
func check(path string, info fs.FileInfo, limit int64) error {
	var err error
	if !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	} else if info.Size() > limit {
		err = tooLarge(info.Size(), limit)
	}
	if err != nil {
		return &fs.PathError{
			Op:   "read",
			Path: path,
			Err:  err,
		}
	}
	return nil
}

// tooLarge returns an error for a file above the limit.
func tooLarge(size, limit int64) error {
	return fmt.Errorf("%d bytes exceed the limit of %d", size, limit)
}

// Write replaces path with a file that has this content and mode, regardless of the umask, and syncs
// the file and its directory. A file that already has the content is not written. Everything except a
// directory with files is replaced. Only one process at a time may write a file.
func Write(path string, data []byte, mode fs.FileMode) error {
	return replace(path, path+TempSuffix, data, mode, true)
}

// replace is Write with another path for the temporary file, and maybe without a sync: then the file may be
// lost in a power failure.
func replace(path, temp string, data []byte, mode fs.FileMode, isSynced bool) error {
	removeErr := remove(temp) // fails in a read-only file system
	have, err := Read(path, int64(len(data)))
	if err == nil && bytes.Equal(have, data) {
		return nil
	}
	if removeErr != nil {
		return removeErr
	}
	return overwrite(path, temp, data, mode, isSynced)
}

// Overwrite is Write without a look at the present content, and without a sync. It is the cheapest way to
// replace a file that changes with each call.
func Overwrite(path string, data []byte, mode fs.FileMode) error {
	return overwrite(path, path+TempSuffix, data, mode, false)
}

// overwrite is Overwrite with another path for the temporary file, and maybe with a sync.
func overwrite(path, temp string, data []byte, mode fs.FileMode, isSynced bool) error {
	size := int64(len(data))
	if size > MaxSize {
		return &fs.PathError{
			Op:   "write",
			Path: path,
			Err:  tooLarge(size, MaxSize),
		}
	}
	// The content must be on the disk before the name points to it.
	err := create(temp, data, mode, isSynced)
	if errors.Is(err, fs.ErrExist) && remove(temp) == nil {
		err = create(temp, data, mode, isSynced)
	}
	if err == nil {
		err = rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, remove(temp))
	}
	if !isSynced {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

// rename renames a file. It replaces an empty directory too.
func rename(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrExist) && syscall.Rmdir(to) == nil {
		err = os.Rename(from, to)
	}
	return err
}

// Remove removes the file at path, and the temporary file that a crash left. A missing file is not an
// error.
func Remove(path string) error {
	return errors.Join(remove(path), remove(path+TempSuffix))
}

// remove removes a file. A missing file is not an error.
func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// create creates a file, and maybe syncs its content and mode to disk.
func create(path string, data []byte, mode fs.FileMode, isSynced bool) error {
	// O_EXCL does not follow a link that somebody put there.
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // the umask applied to the mode of OpenFile
	}
	if err == nil && isSynced {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in a directory durable (fsync(2), NOTES).
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
