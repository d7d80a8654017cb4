package matchers

import (
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// claim claims candidates for r and returns the claimed candidates. The first resource, in file order, claims
// one of these:
//
//   - Hardware, if the resource offers it as a device. The claim includes all its nodes and
//     network interfaces, even if they are not selected, because they share the hardware.
//   - A single node. The rest of its hardware stays free, but no later resource gets that
//     hardware as a device with the claimed node.
//   - The IOMMU group of functions that are bound to VFIO, because each of them can reach
//     the others.
//
// Companions claim nothing. A mediated device is separate hardware from its PCI
// function. A claim with shared = true does not exclude resources with shared = true, and a claim
// with shared = "exclusive" does not exclude resources with shared = "exclusive": the ledger
// withholds their devices while a container holds another device of the hardware.
func (m *run) claim(r *config.Resource, found []candidate) []candidate {
	claimed := make([]candidate, 0, len(found))
	for i := range found {
		c := &found[i]
		owner := m.ownerOf(r, c)
		if owner == nil {
			m.own(r, c)
			claimed = append(claimed, *c)
			continue
		}
		note := noteAt(
			r.Place,
			`the first resource in the configuration that selects a device gets it; use match and exclude to distinguish them, each = "node" in both if they select different nodes of it, or shared = true (at once) or "exclusive" (one at a time) in both`,
			"not offered here, because "+owner.Place+" has it: ",
		)
		m.left = append(m.left, leftOut{
			device: c,
			owner:  owner,
			note:   devicesNote{Note: note},
		})
	}
	return claimed
}

// ownerOf returns the resource whose claim on a candidate or one of its nodes excludes r, or nil.
func (m *run) ownerOf(r *config.Resource, c *candidate) *config.Resource {
	things := []any{c.hardware, c.other()}
	// A device with a node that another resource claimed singly is not a whole device any more.
	for _, p := range c.picks {
		things = append(things, p.node)
	}
	for _, thing := range things {
		owner := m.owners[thing]
		// A resource may select a thing twice, such as two nodes of one hardware with each = "node".
		if owner == nil || owner == r {
			continue
		}
		// Both resources must permit it, in the same way.
		areShared := owner.Shared && r.Shared
		areExclusive := owner.Exclusive && r.Exclusive
		if !areShared && !areExclusive {
			return owner
		}
	}
	return nil
}

// own makes r the owner of a candidate, as far as it has no owner: the first claim stays, even if another resource
// with the same shared also gets the device.
func (m *run) own(r *config.Resource, c *candidate) {
	var things []any
	// A single node leaves the rest of its hardware to others.
	if c.single && len(c.picks) > 0 {
		things = append(things, c.picks[0].node)
	} else if c.hardware != nil {
		things = append(things, c.hardware)
	}
	if other := c.other(); other != "" {
		things = append(things, other)
	}
	for _, thing := range things {
		if m.owners[thing] == nil {
			m.owners[thing] = r
		}
	}
}

// other identifies a claim on something that is neither hardware nor a node. A virtual device
// belongs to its resource, by the name of the resource.
func (c *candidate) other() string {
	if c.name != "" && c.virtual == nil {
		return c.name
	}
	// Functions of one group are one claim, whichever of them was selected.
	group := c.iommuGroup()
	if group == "" {
		return ""
	}
	return device.GroupPlace(group)
}
