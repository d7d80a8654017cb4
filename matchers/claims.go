package matchers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// claims record the first resource, in file order, that claims something:
//
//   - Hardware, if the resource offers it as a device: with all its nodes and
//     network interfaces, selected or not, since they share the hardware.
//   - A node that is offered by itself. The rest of its hardware stays free, but
//     no later resource gets that hardware as a device with the claimed node.
//   - The IOMMU group of functions that are bound to VFIO: one of them reaches
//     the others.
//
// Companions claim nothing. A mediated device is separate hardware from its PCI
// function. A claim with shared = true does not exclude resources with shared = true.
type claims struct {
	// owners of hardware, nodes and candidate.other, of each functionUse, and of IDs.
	owners map[any]*config.Resource
	ids    map[string]*config.Resource
}

// functionUse is a PCI function as a whole, or by its mediated devices. Some drivers
// support both at once, so both are offered.
type functionUse struct {
	function *device.Hardware
	mediated bool
}

// claim claims candidates for r and returns the claimed ones. Those of other
// resources are noted.
func (m *run) claim(r *config.Resource, found []candidate) []candidate {
	denied := map[*config.Resource][]*candidate{} // by the resource that has it
	var got []candidate
	for i := range found {
		c := &found[i]
		if owner := m.claims.owner(r, c); owner != nil {
			denied[owner] = append(denied[owner], c)
			continue
		}
		for _, what := range c.claims() {
			if m.claims.owners[what] == nil {
				m.claims.owners[what] = r
			}
		}
		got = append(got, *c)
	}
	for _, owner := range slices.SortedFunc(maps.Keys(denied), func(a, b *config.Resource) int {
		return cmp.Compare(a.Place, b.Place)
	}) {
		m.note(r.Place, "the first resource in the configuration that selects a device gets it; match and exclude tell them apart, and shared = true in both gives it to both",
			"not offered here, since %s has it: %s", owner.Place, andMore(denied[owner][0].describe(), len(denied[owner])))
	}
	return got
}

// owner is the resource whose claim on a candidate or one of its nodes excludes
// r; nil for none.
func (c *claims) owner(r *config.Resource, found *candidate) *config.Resource {
	has := func(what any) *config.Resource {
		if owner := c.owners[what]; owner != r && owner != nil && !(owner.Shared && r.Shared) {
			return owner
		}
		return nil
	}
	owner := cmp.Or(has(found.hardware), has(found.other()))
	for _, p := range found.picks {
		owner = cmp.Or(owner, has(p.node))
	}
	return owner
}

// claims lists the things that a candidate excludes others from.
func (c *candidate) claims() []any {
	var all []any
	if c.single && len(c.picks) > 0 {
		all = append(all, c.picks[0].node)
	} else if c.hardware != nil {
		all = append(all, c.hardware)
	}
	if other := c.other(); other != "" {
		all = append(all, other)
	}
	return all
}

// other identifies a claim on something that is neither hardware nor a node. A
// virtual device belongs to its resource by name.
func (c *candidate) other() string {
	if c.name != "" && c.virtual == nil {
		return c.name
	}
	if g := c.iommuGroup(); g != "" {
		return "group " + g
	}
	return ""
}

// overlaps notes PCI functions that one resource offers as a whole and another
// as mediated devices.
func (m *run) overlaps(r *config.Resource, devices []candidate) {
	var found []string
	var other *config.Resource
	what := ""
	for _, c := range devices {
		for _, h := range c.members() {
			use := functionUse{h, false}
			offered := "mediated devices of it"
			if h.MDev != nil {
				use = functionUse{h.Parent, true}
				offered = "the PCI function that it is a part of"
			} else if h.PCI == nil {
				continue
			}
			if m.claims.owners[use] == nil {
				m.claims.owners[use] = r
			}
			owner := m.claims.owners[functionUse{use.function, !use.mediated}]
			if owner == nil || owner == r || owner.Shared && r.Shared || other != nil && other != owner {
				continue
			}
			if other == nil {
				other = owner
				what = offered
			}
			found = append(found, describe(h))
		}
	}
	if other != nil {
		m.note(r.Place, "match and exclude keep them apart; shared = true in both says that it is meant",
			"%s: offered here, and %s by %s: their containers share the hardware", andMore(found[0], len(found)), what, other.Place)
	}
}

// iommuGroup is the number of the IOMMU group that a device reaches through
// VFIO, "" for none.
func (c *candidate) iommuGroup() string {
	if len(c.groups) > 0 {
		return c.groups[0].number
	}
	return vfioGroup(c.hardware)
}

// describe names a device for an administrator.
func (c *candidate) describe() string {
	text := ""
	switch {
	case c.pool:
		return "the pool"
	case c.value != "":
		return fmt.Sprintf("the group %q", c.value)
	case c.name != "":
		return c.name
	case c.single && c.picks[0].node.Net != nil:
		text = "network interface " + c.picks[0].node.Path
	case c.single:
		text = c.picks[0].node.Path
	default:
		text = describe(c.hardware)
	}
	if g := c.iommuGroup(); g != "" {
		text += " of IOMMU group " + g
	}
	return text
}

// describe names hardware for an administrator.
func describe(h *device.Hardware) string {
	switch h.Bus {
	case device.USBBus:
		if h.USB != nil && h.USB.ProductName != "" {
			return fmt.Sprintf("USB device %s (%q)", h.Name, h.USB.ProductName)
		}
		return "USB device " + h.Name
	case device.PCIBus:
		return "PCI function " + h.Name
	case device.MDevBus:
		return "mediated device " + h.Name
	}
	return "platform device " + h.Name
}

// andMore is "first and n-1 more".
func andMore(first string, n int) string {
	if n < 2 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, n-1)
}
