package inventory

import (
	"os"
	"testing"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// A node without its number in sysfs is kept only if it still exists: the kernel
// removes a node before its number.
func TestNodeRemovedDuringAScanIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, still := range []bool{true, false} {
		dev := t.TempDir()
		if still {
			must(t, os.WriteFile(dev+"/ttyUSB1", []byte("char 188:1\n"), 0o644))
		}
		c := &scan{sysfs: sysfs.New(t.TempDir()), cache: newCache(), tree: &devTree{root: dev, recording: true}}
		node := &device.Node{Path: "/dev/ttyUSB1", Type: device.CharNode, Major: 188, Minor: 1, Kernel: "ttyUSB1"}
		kept := c.locate([]*device.Node{node})
		if got := len(kept) == 1; got != still {
			t.Errorf("still there %t: kept %t", still, got)
		}
	}
}
