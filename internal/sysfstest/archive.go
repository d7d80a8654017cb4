// Package sysfstest makes hosts for tests: from text archives of machines
// (Load, Unpack), from a running host (Record), and step by step, with devices
// that come and go (Host). What it makes is a directory with "sys" and "dev"
// below it, which package inventory reads like any other host.
package sysfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/inventory"
)

// Tree is the directory of a host: its sysfs and its device nodes.
type Tree struct{ Root string }

// Sysfs is where the host's /sys is.
func (t Tree) Sysfs() string { return filepath.Join(t.Root, "sys") }

// Dev is where the host's /dev is.
func (t Tree) Dev() string { return filepath.Join(t.Root, "dev") }

// Load unpacks an archive file into a directory of the test.
func Load(t testing.TB, file string) Tree {
	t.Helper()
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tree := Tree{t.TempDir()}
	if err := Unpack(tree.Root, archive); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tree
}

// nodeText is the content of a file that stands for a node.
var nodeText = regexp.MustCompile(`^(char|block) [0-9]+:[0-9]+\n$`)

// Unpack writes a machine below dir. An archive is in txtar format; its files
// are named
//
//	sys/devices/…/idVendor                    an attribute
//	sys/bus/usb/devices/1-2 -> ../../../…     a symbolic link
//	dev/ttyUSB0                               a node: "char 188:0" or "block 8:0"
//	dev/serial/by-id/usb-x -> ../../ttyUSB0   a symbolic link
//	dev/snd/                                  an empty directory
//
// The directories that links below sys lead to in bus, class, firmware and
// kernel are made if the archive does not have them. Nothing is written
// outside dir, whatever the archive says.
func Unpack(dir string, archive []byte) error {
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
	for _, f := range txtar.Parse(archive).Files {
		if err := unpackFile(root, f); err != nil {
			return fmt.Errorf("archive: %q: %w", f.Name, err)
		}
	}
	return nil
}

func unpackFile(root *os.Root, f txtar.File) error {
	name, target, isLink := strings.Cut(f.Name, " -> ")
	name, isDir := strings.CutSuffix(name, "/")
	if !fs.ValidPath(name) || !strings.HasPrefix(name, "sys/") && !strings.HasPrefix(name, "dev/") {
		return errors.New("not a path below sys or dev")
	}
	if isDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if _, err := root.Lstat(name); err == nil {
		return errors.New("is there twice")
	}
	if isLink {
		return unpackLink(root, name, target)
	}
	if strings.HasPrefix(name, "dev/") && !nodeText.Match(f.Data) {
		return fmt.Errorf("%q is not a node: want %q or %q", f.Data, "char 188:0\n", "block 8:0\n")
	}
	return root.WriteFile(name, f.Data, 0o644)
}

func unpackLink(root *os.Root, name, target string) error {
	if strings.HasPrefix(name, "sys/") {
		to := path.Join(path.Dir(name), target)
		if path.IsAbs(target) || !strings.HasPrefix(to, "sys/") {
			return errors.New("leads out of sys")
		}
		for _, top := range []string{"sys/bus/", "sys/class/", "sys/firmware/", "sys/kernel/"} {
			if strings.HasPrefix(to, top) {
				if err := root.MkdirAll(to, 0o755); err != nil {
					return err
				}
			}
		}
	}
	return root.Symlink(target, name)
}
