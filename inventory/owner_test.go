package inventory

import (
	"testing"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/sysfs"
)

// A node whose number sysfs does not know is kept only if it is there still:
// the kernel takes a node away before its number.
func TestNodeThatGoesDuringAScanIsNoNodeWithoutHardware(t *testing.T) {
	t.Parallel()
	for _, still := range []bool{true, false} {
		c := &scan{sysfs: sysfs.New(t.TempDir())}
		node := &device.Node{Path: "/dev/ttyUSB1", Type: device.CharNode, Major: 188, Minor: 1, Kernel: "ttyUSB1"}
		kept := c.locate([]*device.Node{node}, func(*device.Node) bool { return still })
		if got := len(kept) == 1; got != still {
			t.Errorf("still there %t: kept %t", still, got)
		}
	}
}
