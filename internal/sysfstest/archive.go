// Package sysfstest makes hosts for tests: from recorded machines (Load), and
// step by step, with devices that come and go (Host). What it makes is a
// directory with "sys" and "dev" below it, which package inventory reads like
// any other host.
package sysfstest

import (
	"context"
	"os"
	"testing"

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

// Unpack is machine.Unpack.
func Unpack(dir string, archive []byte) error { return machine.Unpack(dir, archive) }

// Record is machine.Record of all that a scan reads, with a comment in front.
func Record(ctx context.Context, host inventory.Options, comment string) ([]byte, error) {
	return machine.Record(ctx, host, machine.Options{Head: comment})
}
