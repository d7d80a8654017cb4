package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// disks are the directories that scripts make full or read-only: small file systems, if the
// test may mount.
var disks = []string{"state", "run", "cdi"}

func (w *world) mount() error {
	for _, name := range disks {
		err := unix.Mount("tmpfs", filepath.Join(w.dir, name), "tmpfs", 0, "size=512k,nr_inodes=200")
		if errors.Is(err, unix.EPERM) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", name, err)
		}
		w.mounted = true
	}
	return nil
}

func (w *world) unmount() {
	for _, name := range disks {
		_ = unix.Unmount(filepath.Join(w.dir, name), unix.MNT_DETACH)
	}
}

// injectFault makes a directory full or read-only.
func (w *world) injectFault(how, name string) error {
	if !w.mounted || w.faulty[name] != "" {
		return nil
	}
	w.faulty[name] = how
	w.truth.stateUnsaved = w.truth.stateUnsaved || name == "state"
	dir := filepath.Join(w.dir, name)
	if how == "lock" {
		return remount(dir, unix.MS_RDONLY)
	}
	filler := filepath.Join(dir, ".filler")
	if err := os.Mkdir(filler, 0o700); err != nil {
		return err
	}
	// Links need inodes alone: "run" gets files until no inode is left. The others are full
	// at the first error.
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(filler, fmt.Sprint(i)), make([]byte, 300<<10), 0o600); err != nil && name != "run" {
			break
		}
	}
	return nil
}

// clearFault ends the fault of a directory.
func (w *world) clearFault(name string) error {
	how := w.faulty[name]
	delete(w.faulty, name)
	dir := filepath.Join(w.dir, name)
	if how == "lock" {
		return remount(dir, 0)
	}
	return os.RemoveAll(filepath.Join(dir, ".filler"))
}

// remount retries while the program writes (EBUSY).
func remount(dir string, flags uintptr) error {
	for range 1000 {
		err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return unix.EBUSY
}
