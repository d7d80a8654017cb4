// Package atomicfile replaces files atomically: readers, also after a power failure,
// find the old content or the new.
package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix is appended to the name of a file for the temporary one next to it. The
// name is fixed: a crash leaves at most one temporary file, which the next Write
// replaces.
const TempSuffix = ".tmp"

// Write makes path a file with this content and mode, regardless of the umask, and
// syncs it and its directory. It does not write a file that has the content. Only one
// process at a time may write a file.
func Write(path string, data []byte, mode fs.FileMode) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	temp := path + TempSuffix
	if err := remove(temp); err != nil {
		return err
	}
	err := writeSynced(temp, data, mode)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, remove(temp))
	}
	return syncDir(filepath.Dir(path))
}

// Remove removes the file at path, and a temporary one left by a crash. A missing file
// is no error.
func Remove(path string) error {
	return errors.Join(remove(path), remove(path+TempSuffix))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeSynced(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
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
