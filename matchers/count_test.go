package matchers_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/matchers"
)

// The count of a match replaces the count of the resource. A device of several matches has the
// smallest of their counts, so that no node has more containers than its match allows.
func TestCountOfMatch(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	for _, tc := range []struct {
		name, toml string
		slots      map[string]int // by ID
	}{
		{
			name: "override",
			toml: `
count = 3
match = [
  { glob = "/dev/fuse", count = 5 },
  { glob = "/dev/null" },
]`,
			slots: map[string]int{"fuse": 5, "null": 3},
		},
		{
			name: "the first match that selects a node",
			toml: `
match = [
  { glob = "/dev/fuse", count = 5 },
  { glob = "/dev/{fuse,null}", count = 2 },
]`,
			slots: map[string]int{"fuse": 5, "null": 2},
		},
		{
			name: "nodes of one device",
			toml: `
count = 9
each = "device"
match = [
  { pci = {}, driver = "nvidia", glob = "/dev/dri/*", count = 4 },
  { usb.id = "1d50:606f", glob = "/dev/ttyACM*", count = 2 },
  { usb.id = "1d50:606f", glob = "/dev/bus/usb/**" },
]
container.path = "/dev/x/"`,
			slots: map[string]int{"0000:41:00.0": 4, "usb:1d50:606f:CAN-A-77": 9, "usb:1d50:606f:CAN-B-78": 2},
		},
		{
			name: "hardware without nodes",
			toml: `
match = [
  { pci.class = "0c03", count = 6 },
  { pci = {}, driver = "xhci_hcd", count = 2 },
]`,
			slots: map[string]int{"0000:00:14.0": 6},
		},
		{
			name: "pool",
			toml: `
each = "all"
container.path = "/dev/x/"
match = [
  { glob = "/dev/fuse", count = 5 },
  { glob = "/dev/null", count = 2 },
]`,
			slots: map[string]int{"all:example.com:x": 2},
		},
		{
			name: "virtual",
			toml: `
when.node_name = "*"
match = [
  { virtual = "a", count = 5 },
  { virtual = "b" },
]`,
			slots: map[string]int{"virtual:example.com:x:a": 5, "virtual:example.com:x:b": 1},
		},
		{
			name: "CDI devices",
			toml: `
match = [
  { cdi_device = "nvidia.com/gpu=0", count = 5 },
  { cdi_device = "nvidia.com/gpu=1" },
]`,
			slots: map[string]int{"cdi:nvidia.com:gpu:0": 5, "cdi:nvidia.com:gpu:1": 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			slots := map[string]int{}
			cfg := parse(t, "[[resource]]\nname = \"x\"\n"+tc.toml)
			result := matchers.Match(cfg, snap, nil, opts)
			for _, o := range result.Resources[0].Offers {
				slots[o.ID] = o.Slots
			}
			equal(t, "slots", tc.slots, slots)
		})
	}
}
