// Package machine stores hosts as text: Record writes the reads of a scan into an
// archive, and Unpack makes a tree from an archive that package inventory scans like
// the host. A scan of the recording equals the scan of the host, except for problems:
// unreadable files are missing, and the head of the archive names them.
//
// An archive is in txtar format (golang.org/x/tools/txtar): a head with a description,
// and files, which are named
//
//	sys/devices/…/idVendor                    an attribute
//	sys/bus/usb/devices/1-2 -> ../../../…     a symbolic link
//	dev/ttyUSB0                               a node: "char 188:0" or "block 8:0"
//	dev/serial/by-id/usb-x -> ../../ttyUSB0   a symbolic link
//	dev/snd/                                  an empty directory
//	dev/pts/                                  "mount": another file system is mounted there
//	proc/1/net/route                          lines of a file of /proc that matter
//
// An ambiguous name or link target is written as a Go string, as is the text of such an
// attribute, in place of a content:
//
//	sys/devices/…/serial = "\xff\n-- x --\n"
//
// so that an archive is plain text for any device, and survives copy and paste.
package machine

import "path/filepath"

// Tree is the directory of an unpacked machine.
type Tree struct{ Root string }

// Sysfs is the path of the machine's /sys.
func (t Tree) Sysfs() string { return filepath.Join(t.Root, "sys") }

// Proc is the path of the machine's /proc, next to its /sys. It may not exist.
func (t Tree) Proc() string { return filepath.Join(t.Root, "proc") }

// Dev is the path of the machine's /dev.
func (t Tree) Dev() string { return filepath.Join(t.Root, "dev") }
