package inventory_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
	"github.com/generic-dp/generic-dp/inventory"
)

func changed(t *testing.T, w *inventory.MountWatch, what string) {
	t.Helper()
	select {
	case <-w.Changes():
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing changed", what)
	}
}

// tables are those of this host as a reading of what it uses saw them.
func tables(t *testing.T, s *inventory.Scanner) inventory.TablesRead {
	t.Helper()
	snap, err := s.Scan(t.Context())
	if err != nil {
		t.Skip(err)
	}
	attrs := s.Attributes()
	if attrs.Tables() != (inventory.TablesRead{}) {
		t.Error("tables were read that nobody has asked for")
	}
	uses(snap, attrs)
	if attrs.Tables() == (inventory.TablesRead{}) {
		t.Skip("this host has no disks")
	}
	return attrs.Tables()
}

// A mount of this host's is told of when it is not as it was read.
func TestMountWatchOnThisHost(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Skipf("mounts are refused here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	var st unix.Stat_t
	if err := unix.Stat(to, &st); err != nil || unix.Major(st.Dev) == 0 {
		t.Skipf("%s is on no block device: %v", to, err)
	}
	s := inventory.New(inventory.Options{})
	without := tables(t, s)
	w := inventory.NewMountWatch(inventory.Options{})
	goes(t, w.Run)
	w.Read(without)
	mount(from, to, "", unix.MS_BIND)
	changed(t, w, "mounted")
	with := tables(t, s)
	w.Read(with)
	if err := unix.Unmount(to, 0); err != nil {
		t.Fatal(err)
	}
	changed(t, w, "unmounted")
	// What was read is over when it is told of.
	w.Read(without)
	w.Read(with)
	changed(t, w, "read what was over")
}

// Tables that nobody can be woken by are looked at when they are read.
func TestMountWatchOfARecording(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	h.AddNode("", sysfstest.Node{Name: "sda", Subsystem: "block", Block: true, Major: 8})
	h.WriteProc("1/mountinfo", "36 35 8:0 / /boot rw,noatime shared:1 - ext4 /dev/sda rw\n")
	h.WriteProc("swaps", "Filename Type\n/dev/sda partition 100 1 -2\n")
	snap, attrs := look(t, h.Tree)
	uses(snap, attrs)
	w := inventory.NewMountWatch(inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	goes(t, w.Run)
	h.WriteProc("1/mountinfo", "")
	w.Read(attrs.Tables())
	changed(t, w, "another table than was read")
	h.WriteProc("1/mountinfo", "36 35 8:0 / /boot rw,relatime - ext4 /dev/sda rw\n37 35 0:50 / /run/pod rw - tmpfs tmpfs rw\n")
	h.WriteProc("swaps", "Filename Type\n/dev/sda partition 100 99 -2\n")
	snap, again := look(t, h.Tree)
	uses(snap, again)
	if attrs.Tables() != again.Tables() {
		t.Error("options of a mount, a tmpfs and how much of swap space is used count")
	}
}
