package matchers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// claims record the first resource, in file order, that claims one of these:
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
type claims struct {
	// owners has the resource of hardware, of a node and of candidate.other.
	// Keys of different types do not collide, so that one map is enough.
	owners map[any]*config.Resource
	// ids has the offered IDs.
	ids map[string]bool
}

// claim claims candidates for r and returns the claimed candidates. It notes candidates
// that another resource has.
func (m *run) claim(r *config.Resource, found []candidate) []candidate {
	taken := make(map[*config.Resource][]*candidate) // by owner
	claimed := make([]candidate, 0, len(found))
	for i := range found {
		c := &found[i]
		owner := m.claims.owner(r, c)
		if owner == nil {
			m.claims.add(r, c)
			claimed = append(claimed, *c)
			continue
		}
		taken[owner] = append(taken[owner], c)
		m.left = append(m.left, leftOut{
			device: c,
			owner:  owner,
		})
	}
	// The notes must not change their order from one match to the next.
	owners := slices.SortedFunc(maps.Keys(taken), func(a, b *config.Resource) int {
		return cmp.Compare(a.Place, b.Place)
	})
	for _, owner := range owners {
		m.note(
			r.Place,
			`the first resource in the configuration that selects a device gets it; use match and exclude to distinguish them, each = "node" in both if they select different nodes of it, or shared = true (at once) or "exclusive" (one at a time) in both`,
			"not offered here, because %s has it: %s",
			owner.Place,
			andMore(taken[owner][0].describe(), len(taken[owner])),
		)
	}
	return claimed
}

// owner returns the resource whose claim on a candidate or one of its nodes excludes r, or nil.
func (c *claims) owner(r *config.Resource, found *candidate) *config.Resource {
	// The first claim that excludes r decides which resource the note names.
	owner := c.ownerOf(r, found.hardware)
	owner = cmp.Or(owner, c.ownerOf(r, found.other()))
	// A device with a node that another resource claimed singly is not a whole device any more.
	for _, p := range found.picks {
		owner = cmp.Or(owner, c.ownerOf(r, p.node))
	}
	return owner
}

// ownerOf returns the resource whose claim on a node, hardware or candidate.other excludes r, or nil.
func (c *claims) ownerOf(r *config.Resource, thing any) *config.Resource {
	owner := c.owners[thing]
	// A resource may select a thing twice, such as two nodes of one hardware with each = "node".
	if owner == nil || owner == r {
		return nil
	}
	// Both resources must permit it, in the same way.
	areShared := owner.Shared && r.Shared
	areExclusive := owner.Exclusive && r.Exclusive
	if areShared || areExclusive {
		return nil
	}
	return owner
}

// add claims a candidate for r, as far as no other resource claims it.
func (c *claims) add(r *config.Resource, found *candidate) {
	// A single node leaves the rest of its hardware to others.
	if found.single && len(found.picks) > 0 {
		c.addThing(r, found.picks[0].node)
	} else if found.hardware != nil {
		c.addThing(r, found.hardware)
	}
	other := found.other()
	if other != "" {
		c.addThing(r, other)
	}
}

// addThing claims a node, hardware or candidate.other.
func (c *claims) addThing(r *config.Resource, thing any) {
	// The first claim stays, even if another resource with the same shared also gets the device.
	if c.owners[thing] == nil {
		c.owners[thing] = r
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
