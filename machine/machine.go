// Package machine keeps hosts as text: Record writes what a scan reads of a
// host into one archive, and Unpack makes a tree of an archive that package
// inventory reads like the host. A scan of the recording is equal to the scan
// of the host, but for problems: what could not be read is not there, and the
// head of the archive names it.
//
// An archive is in txtar format (golang.org/x/tools/txtar): a head that says
// what it is, and files, which are named
//
//	sys/devices/…/idVendor                    an attribute
//	sys/bus/usb/devices/1-2 -> ../../../…     a symbolic link
//	dev/ttyUSB0                               a node: "char 188:0" or "block 8:0"
//	dev/serial/by-id/usb-x -> ../../ttyUSB0   a symbolic link
//	dev/snd/                                  an empty directory
//	dev/pts/                                  "mount": another file system is mounted there
//	proc/1/net/route                          lines of a file of /proc that matter
//
// A name or the target of a link that could be misread is written as a string
// of Go, and so is the text of an attribute, in place of a content:
//
//	sys/devices/…/serial = "\xff\n-- x --\n"
//
// so an archive is plain text, whatever devices say, and outlives being pasted.
package machine

import "path/filepath"

// Tree is the directory of an unpacked machine.
type Tree struct{ Root string }

// Sysfs is where the machine's /sys is.
func (t Tree) Sysfs() string { return filepath.Join(t.Root, "sys") }

// Proc is where the machine's /proc is, beside its /sys. It may not exist.
func (t Tree) Proc() string { return filepath.Join(t.Root, "proc") }

// Dev is where the machine's /dev is.
func (t Tree) Dev() string { return filepath.Join(t.Root, "dev") }
