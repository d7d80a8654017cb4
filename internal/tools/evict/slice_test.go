package evict

import (
	"fmt"
	"testing"
)

// taintedSlice is a slice of a node, in a pool of its own, with n tainted devices.
func taintedSlice(node, name string, n int) *sliceObject {
	o := &sliceObject{
		metadata: metadata{name: name},
		driver:   "driver",
		pool:     name,
		node:     node,
		tainted:  map[string]string{},
	}
	for i := range n {
		o.tainted[fmt.Sprint("device-", i)] = "gone"
	}
	return o
}

// A node with many tainted devices does not displace the devices of other nodes.
func TestManyTaintedDevices(t *testing.T) {
	t.Parallel()
	known := newTaints()
	known.set(taintedSlice("good", "first", 2))
	const each = 128
	for i := range 2 * maxRemembered / each {
		_, forgotten := known.set(taintedSlice("bad", fmt.Sprintf("bad-%04d", i), each))
		if forgotten != nil && forgotten.node != "bad" {
			t.Fatalf("a slice of the node %s was forgotten", forgotten.node)
		}
	}
	known.set(taintedSlice("good", "last", 2))
	for _, pool := range []string{"first", "last"} {
		if known.of("good", allocated{driver: "driver", pool: pool, device: "device-1"}) == "" {
			t.Errorf("the slice %s was forgotten", pool)
		}
	}
	if known.devices > maxRemembered || known.devices < maxRemembered-2*each {
		t.Errorf("%d devices are remembered, want at most %d", known.devices, maxRemembered)
	}
	for name := range known.nodes {
		known.forget(name)
	}
	if known.devices != 0 || len(known.byNode) != 0 {
		t.Errorf("%d devices of %d nodes are left", known.devices, len(known.byNode))
	}
}
