package recording

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/internal/host/inventory"
)

// The permissions of unpacked files: any user may read them.
const (
	dirMode  = 0o755
	fileMode = 0o644
)

// requiredDirs exist on every host. A scan treats a tree without them as missing.
var requiredDirs = []string{"sys/devices", "sys/dev/char", "sys/dev/block", "dev"}

// linkedDirs are the parts of sysfs with directories that only links point to: the target of
// "driver" is "bus/usb/drivers/usb", and an archive has no file in it.
var linkedDirs = []string{"sys/bus/", "sys/class/", "sys/firmware/", "sys/kernel/"}

// Unpack writes a machine below dir, which must not contain one. Whatever the archive contains,
// nothing is written outside dir, and no scan of it leaves dir. If it fails, a part of the
// machine may exist, which the caller removes with dir.
func Unpack(dir string, archive []byte) error {
	entries, err := parse(archive)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, required := range requiredDirs {
		err := os.MkdirAll(filepath.Join(dir, required), dirMode)
		if err != nil {
			return err
		}
	}
	// A root refuses to follow links out of dir.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// Without the marker, a scan would not accept the files below dev as nodes.
	err = root.WriteFile("dev/"+inventory.RecordingMarker, nil, fileMode)
	if err != nil {
		return err
	}
	u := unpacker{root: root, made: make(map[string]bool)}
	for _, e := range entries {
		err := u.unpack(e)
		if err != nil {
			return fmt.Errorf("archive: %q: %w", e.name, err)
		}
	}
	return nil
}

// unpacker writes the entries of an archive. It is used by one goroutine.
type unpacker struct {
	root *os.Root
	made map[string]bool // directories that exist
}

// unpack writes an entry. Its directories may be missing: an archive only has empty ones.
func (u *unpacker) unpack(e entry) error {
	switch e.kind {
	case dir:
		return u.mkdir(e.name)
	// The marker makes a scan treat the directory as a mount point.
	case mount:
		return u.write(e.name+"/"+inventory.RecordingMarker, "")
	case link:
		return u.link(e)
	}
	return u.write(e.name, e.text)
}

// mkdir makes a directory with its parents. It remembers each directory, since a root walks
// the whole path in every call.
func (u *unpacker) mkdir(name string) error {
	if u.made[name] {
		return nil
	}
	err := u.root.MkdirAll(name, dirMode)
	if err == nil {
		u.made[name] = true
	}
	return err
}

// write writes a new file. An existing one may be a link, whose target would be overwritten.
func (u *unpacker) write(name, text string) error {
	err := u.mkdir(path.Dir(name))
	if err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	// Some file systems report a write error only when the file is closed.
	return cmp.Or(err, f.Close())
}

// link makes a link, and the directory that it points to if nothing else would.
func (u *unpacker) link(e entry) error {
	err := u.mkdir(path.Dir(e.name))
	if err != nil {
		return err
	}
	for _, top := range linkedDirs {
		isBelow := strings.HasPrefix(e.name, "sys/") && strings.HasPrefix(e.target(), top)
		if !isBelow {
			continue
		}
		// checkTarget has made sure that the target is below sys.
		err := u.mkdir(e.target())
		if err != nil {
			return err
		}
	}
	return u.root.Symlink(e.text, e.name)
}
