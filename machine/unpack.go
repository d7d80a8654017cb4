package machine

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/inventory"
)

// Unpack writes a machine below dir, which must have none. The directories in bus,
// class, firmware and kernel that links below sys point to are made if the archive
// lacks them. For any archive, nothing is written outside dir, and no scan of it leaves
// dir.
func Unpack(dir string, archive []byte) error {
	entries, err := parse(archive)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, d := range []string{"sys/devices", "sys/dev/char", "sys/dev/block", "dev"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.WriteFile("dev/"+inventory.RecordingMarker, nil, 0o644); err != nil {
		return err
	}
	for _, e := range entries {
		if err := e.unpack(root); err != nil {
			return fmt.Errorf("archive: %q: %w", e.name, err)
		}
	}
	return nil
}

func (e entry) unpack(root *os.Root) error {
	if e.kind == dir || e.kind == mount {
		if err := root.MkdirAll(e.name, 0o755); err != nil || e.kind == dir {
			return err
		}
		return root.WriteFile(e.name+"/"+inventory.RecordingMarker, nil, 0o644)
	}
	if err := root.MkdirAll(path.Dir(e.name), 0o755); err != nil {
		return err
	}
	if e.kind == file {
		f, err := root.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if _, err := f.WriteString(e.text); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	}
	for _, top := range []string{"sys/bus/", "sys/class/", "sys/firmware/", "sys/kernel/"} {
		if strings.HasPrefix(e.name, "sys/") && strings.HasPrefix(e.target(), top) {
			if err := root.MkdirAll(e.target(), 0o755); err != nil {
				return err
			}
		}
	}
	return root.Symlink(e.text, e.name)
}
