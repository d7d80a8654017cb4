package inventory_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
)

// A platform device that a driver has made, and that goes by a number in the
// order of that, is a part of the one that firmware describes.
func TestPlatformDevicesThatAreCounted(t *testing.T) {
	t.Parallel()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	misc := func(name string) []sysfstest.Node { return []sysfstest.Node{{Name: name, Subsystem: "misc"}} }
	h.AddPlatform(sysfstest.Platform{Path: "GOOG0004:00", Nodes: misc("own")})
	h.AddPlatform(sysfstest.Platform{Path: "GOOG0004:00/cros-ec-dev.3.auto", Nodes: misc("cros_ec")})
	h.AddPlatform(sysfstest.Platform{Path: "GOOG0004:00/cros-ec-dev.3.auto/cros-ec-chardev.4.auto", Nodes: misc("deep")})
	// There is nothing better to go by.
	h.AddPlatform(sysfstest.Platform{Path: "alone.5.auto", Nodes: misc("alone")})
	snap := scan(t, h.Tree)
	noProblems(t, snap)
	for node, want := range map[string]string{"own": "GOOG0004:00", "cros_ec": "GOOG0004:00", "deep": "GOOG0004:00", "alone": "alone.5.auto"} {
		if n := findNode(t, snap, "/dev/"+node); n.Hardware == nil || n.Hardware.Name != want {
			t.Errorf("%s belongs to %+v; want %s", node, n.Hardware, want)
		}
	}
	if n := len(findHardware(snap, "GOOG0004:00").Nodes); n != 3 || len(snap.Hardware) != 2 {
		t.Errorf("%d nodes, %d devices; want 3 of one, and 2", n, len(snap.Hardware))
	}
}
