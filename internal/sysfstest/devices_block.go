package sysfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Disk is the node of a block device, "sda".
func Disk(name string) Node { return Node{Name: name, Subsystem: "block", Block: true} }

// Partition is the node of a partition, "sda1" of "sda".
func Partition(disk, name string) Node {
	return Node{Name: name, Subsystem: "block", Block: true, Dir: "block/" + disk + "/" + name}
}

// Hold makes a block device a part of another one, such as one of the device
// mapper. Both are named by their directories.
func (h *Host) Hold(dir, holder string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.linkFrom(holder, dir+"/holders/"+path.Base(holder), holder)
}

// WriteProc writes a file below /proc, "1/mountinfo".
func (h *Host) WriteProc(name, content string) {
	h.t.Helper()
	file := filepath.Join(h.Proc(), name)
	h.check(os.MkdirAll(filepath.Dir(file), 0o755))
	h.check(os.WriteFile(file, []byte(content), 0o644))
}

// Mount writes a line of the first process's mountinfo: a file system of the
// block device with the node at the path below /dev is mounted. root is the
// directory of the file system that is mounted, "/" as a rule. It is not for hosts
// with real nodes.
func (h *Host) Mount(node, root, point string) {
	h.t.Helper()
	name := "1/mountinfo"
	before, err := os.ReadFile(filepath.Join(h.Proc(), name))
	if !errors.Is(err, fs.ErrNotExist) {
		h.check(err)
	}
	text, err := os.ReadFile(filepath.Join(h.Dev(), node))
	h.check(err)
	number := strings.TrimSpace(strings.TrimPrefix(string(text), "block "))
	h.WriteProc(name, fmt.Sprintf("%s36 35 %s %s %s rw,noatime master:1 - ext4 /dev/root rw,errors=continue\n", before, number, root, point))
}

// Link makes a link below sysfs to the directory of a device.
func (h *Host) Link(name, dir string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.linkFrom(dir, name, dir)
}
