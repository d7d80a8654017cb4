package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/atomicfile"
	"github.com/generic-dp/generic-dp/sysfs"
)

// KnownUSB is what was read of a USB device. It stays true until the next boot, as long
// as the link of the device on the bus has the same inode, and the device its number.
type KnownUSB struct {
	Ino    uint64          `json:"inode"`
	Number string          `json:"devnum"`
	Device sysfs.USBDevice `json:"device"`

	restored bool // by LoadUSB, and not compared with the host yet
}

// knownUSBFile is the content of a file of USB devices by directory, of one boot.
type knownUSBFile struct {
	Boot    string              `json:"boot"`
	Devices map[string]KnownUSB `json:"devices"`
}

// maxKnownUSB bounds that file in bytes: a device takes some 300.
const maxKnownUSB = 1 << 20

// LoadUSB takes over the USB devices that an earlier process has read in this boot, by
// the file that it has saved: those that are still there need not be read again, which may
// take longer than a pod is waited for. A file that is missing or of another boot is no
// error. It is to be called before the first scan.
func (s *Scanner) LoadUSB(file, boot string) error {
	known, err := loadKnownUSB(file, boot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("reading the known USB devices: %q: %w", file, err)
	}
	s.usb.mu.Lock()
	defer s.usb.mu.Unlock()
	s.usb.known = known
	return nil
}

func loadKnownUSB(file, boot string) (map[string]KnownUSB, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKnownUSB+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKnownUSB {
		return nil, fmt.Errorf("more than %d bytes", maxKnownUSB)
	}
	var saved knownUSBFile
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, err
	}
	if boot == "" || saved.Boot != boot {
		return nil, nil
	}
	for dir, k := range saved.Devices {
		k.restored = true
		saved.Devices[dir] = k
	}
	return saved.Devices, nil
}

// SaveUSB writes the file for LoadUSB if the USB devices have changed since, and does
// nothing where the boot is unknown.
func (s *Scanner) SaveUSB(file, boot string) error {
	s.usb.mu.Lock()
	changed, known := s.usb.changed, maps.Clone(s.usb.known)
	s.usb.changed = false
	s.usb.mu.Unlock()
	if !changed || boot == "" {
		return nil
	}
	text, err := json.Marshal(knownUSBFile{boot, known})
	if err == nil {
		err = atomicfile.Write(file, append(text, '\n'), 0o600)
	}
	if err != nil {
		s.usb.mu.Lock()
		s.usb.changed = true
		s.usb.mu.Unlock()
		return fmt.Errorf("writing the known USB devices: %q: %w", file, err)
	}
	return nil
}
