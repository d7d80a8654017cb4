package sysfstest

import (
	"os"
	"path"
	"path/filepath"
)

// MDev is a mediated device.
type MDev struct {
	UUID       string
	Type, Name string // the directory of its type; what that is called, if anything
	IOMMUGroup string
	Nodes      []Node
}

// AddMDev makes a mediated device of the device with the directory parent, and
// returns its own directory.
func (h *Host) AddMDev(parent string, m MDev) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	types := path.Join(parent, "mdev_supported_types", m.Type)
	h.check(os.MkdirAll(filepath.Join(h.Sysfs(), types), 0o755))
	h.attrs(types, map[string]string{"name": m.Name})
	own := path.Join(parent, m.UUID)
	h.link(own+"/mdev_type", types)
	if m.IOMMUGroup != "" {
		h.link(own+"/iommu_group", "kernel/iommu_groups/"+m.IOMMUGroup)
	}
	h.onBus("mdev", m.UUID, own)
	for _, n := range m.Nodes {
		h.addNode(own, n)
	}
	return own
}
