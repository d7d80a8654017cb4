package sysfstest

import (
	"os"
	"path/filepath"
)

// Disk is the node of a block device, "sda".
func Disk(name string) Node { return Node{Name: name, Subsystem: "block", Block: true} }

// Partition is the node of a partition, "sda1" of "sda".
func Partition(disk, name string) Node {
	return Node{Name: name, Subsystem: "block", Block: true, Dir: "block/" + disk + "/" + name}
}

// WriteProc writes a file below /proc, "1/net/dev".
func (h *Host) WriteProc(name, content string) {
	h.t.Helper()
	file := filepath.Join(h.Proc(), name)
	h.check(os.MkdirAll(filepath.Dir(file), 0o755))
	h.check(os.WriteFile(file, []byte(content), 0o644))
}
