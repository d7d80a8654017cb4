package matchers_test

import (
	"fmt"

	"github.com/generic-dp/generic-dp/internal/device"
)

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
