package matchers_test

import (
	"fmt"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/matchers"
)

// emptyHost is a host that has nothing beyond its snapshot.
type emptyHost struct{}

func (emptyHost) Attr(string, string, *int) ([]string, bool) { return nil, false }
func (emptyHost) Driver(string) string                       { return "" }
func (emptyHost) CharDriver(uint32) string                   { return "" }
func (emptyHost) InUse(*device.Node) string                  { return "" }
func (emptyHost) Exists(string, *int) bool                   { return false }
func (emptyHost) Glob(_ pattern.Values, _ *int) (_ []string) { return nil }

// Each node of a function with many nodes is a device at a cost that does not depend on how
// many nodes the function has. It is not parallel, since it counts the allocations of the
// process.
func TestManyNodesOfOneFunction(t *testing.T) {
	cfg, err := config.Parse(config.File{Data: []byte("domain = \"example.com\"\n[[resource]]\nname = \"x\"\neach = \"node\"\nmatch.glob = \"/dev/**\"\n")})
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(nodes int) float64 {
		snap := functionWithNodes(nodes)
		return testing.AllocsPerRun(1, func() {
			result := matchers.Match(cfg, snap, nil, matchers.Options{Host: emptyHost{}})
			if got := len(result.Resources[0].Offers); got != nodes {
				t.Errorf("%d offers: want %d", got, nodes)
			}
		})
	}
	const few = 200
	const times = 8
	perNode := allocations(few) / few
	perNodeOfMany := allocations(few*times) / (few * times)
	if perNodeOfMany > 2*perNode {
		t.Errorf("%.0f allocations for each of %d nodes, and %.0f for each of %d", perNode, few, perNodeOfMany, few*times)
	}
}

func functionWithNodes(count int) *device.Snapshot {
	h := &device.Hardware{
		Bus:  device.PCIBus,
		Path: "devices/pci0000:00/0000:00:01.0",
		Name: "0000:00:01.0",
		NUMA: -1,
		PCI:  &device.PCI{Address: "0000:00:01.0", Vendor: "8086", Device: "1234", Class: "120000", SRIOV: "none", VF: -1},
	}
	for i := range count {
		name := fmt.Sprintf("acc%05d", i)
		h.Nodes = append(h.Nodes, &device.Node{
			Path:      "/dev/" + name,
			Type:      device.CharNode,
			Major:     240,
			Minor:     uint32(i),
			Kernel:    name,
			SysPath:   h.Path + "/accel/" + name,
			Subsystem: "accel",
			Hardware:  h,
			Interface: -1,
			Index:     -1,
		})
	}
	return &device.Snapshot{
		Hardware: []*device.Hardware{h},
		Nodes:    h.Nodes,
		Dirs:     []string{"/dev"},
	}
}
