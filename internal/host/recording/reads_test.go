package recording_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/recording"
)

// Every attribute that a scan opens is recorded, and no other: others may block, have
// side effects, or be confidential.
func TestRecordedIsWhatIsRead(t *testing.T) {
	t.Parallel()
	for name, tree := range machines(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alike := []string{
				"bDeviceClass", "bInterfaceClass", "bInterfaceNumber", "class", "dev", "dev_id", "dev_port", "device", "devnum", "idProduct", "idVendor", "index", "manufacturer",
				"modalias", "name", "numa_node", "port_number", "product", "revision", "serial", "speed", "sriov_numvfs", "sriov_totalvfs",
				"subsystem_device", "subsystem_vendor", "type", "uevent", "unique_id", "vendor", "wwid",
			}
			// Every device has every attribute.
			one := filepath.Join(tree.Root, "attribute")
			if err := os.WriteFile(one, []byte("-1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			err := filepath.WalkDir(filepath.Join(tree.Sysfs(), "devices"), func(p string, e fs.DirEntry, err error) error {
				if err != nil || !e.IsDir() {
					return err
				}
				for _, a := range alike {
					if err := os.Link(one, filepath.Join(p, a)); err != nil && !errors.Is(err, fs.ErrExist) {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var opened map[string]bool
			for again := true; again; {
				opened = opens(t, tree.Sysfs(), func() {
					snap, err := inventory.New(options(tree)).Scan(t.Context())
					if err != nil {
						t.Error(err)
					}
					again = err == nil && len(snap.UnreadHardware) > 0
				})
			}
			var recorded map[string]bool
			var more []string
			// On a busy machine, hardware can't be read in time in a first scan, which then reads more.
			for try := 0; try == 0 || len(more) > 0 && try < 10; try++ {
				recorded = recordedReads(t, tree)
				more = slices.DeleteFunc(slices.Sorted(maps.Keys(recorded)), func(p string) bool { return opened[p] })
			}
			for _, p := range more {
				t.Errorf("%s is recorded, and not read", p)
			}
			for _, p := range slices.Sorted(maps.Keys(opened)) {
				if !recorded[p] {
					t.Errorf("%s is read, and not recorded", p)
				}
			}
			if len(opened) == 0 {
				t.Error("nothing was read")
			}
		})
	}
}

// recordedReads returns the files below /sys that a recording of a machine has.
func recordedReads(t *testing.T, tree recording.Tree) map[string]bool {
	t.Helper()
	recorded := make(map[string]bool)
	for _, f := range txtar.Parse(record(t, options(tree), recording.Options{})).Files {
		if path, isSys := strings.CutPrefix(f.Name, "sys/"); isSys && len(f.Data) > 0 {
			recorded[path] = true
		}
	}
	return recorded
}

// opens returns the files below root that do opens, relative to it.
func opens(t *testing.T, root string, do func()) map[string]bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Skipf("no inotify here: %v", err)
	}
	defer unix.Close(fd)
	dirs := make(map[int]string)
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		wd, err := unix.InotifyAddWatch(fd, p, unix.IN_OPEN)
		if err != nil {
			return err
		}
		dirs[wd], err = filepath.Rel(root, p)
		return err
	})
	if err != nil {
		t.Skipf("watching is refused here: %v", err)
	}
	do()
	opened := make(map[string]bool)
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return opened // no more events
		}
		for b := buf[:n]; len(b) > 0; {
			wd, mask := int(int32(binary.NativeEndian.Uint32(b))), binary.NativeEndian.Uint32(b[4:])
			size := binary.NativeEndian.Uint32(b[12:])
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
			b = b[unix.SizeofInotifyEvent+size:]
			if mask&unix.IN_Q_OVERFLOW != 0 {
				t.Fatal("too many events")
			}
			if mask&unix.IN_ISDIR == 0 {
				opened[filepath.Join(dirs[wd], string(name))] = true
			}
		}
	}
}
