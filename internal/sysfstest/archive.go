// Package sysfstest makes hosts for tests: from recorded machines (Load), and
// step by step, with devices that come and go (Host). What it makes is a
// directory with "sys" and "dev" below it, which package inventory reads like
// any other host.
package sysfstest

import (
	"os"
	"testing"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/inventory"
	"github.com/generic-dp/generic-dp/machine"
)

// Tree is the directory of a host: its sysfs and its device nodes.
type Tree = machine.Tree

// Load unpacks an archive file into a directory of the test.
func Load(t testing.TB, file string) Tree {
	t.Helper()
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tree := Tree{Root: t.TempDir()}
	if err := machine.Unpack(tree.Root, archive); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tree
}

// Scan reads a host, and returns what it was read with. On a busy machine a
// file may take as long as a device that is being set up, so that the host is
// read again.
func Scan(t testing.TB, host inventory.Options) (*device.Snapshot, *inventory.Scanner) {
	t.Helper()
	s := inventory.New(host)
	for {
		snap, err := s.Scan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !snap.Again {
			return snap, s
		}
	}
}
