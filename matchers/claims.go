package matchers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// claims are what resources have, in the order of the configuration.
//
// Hardware that a resource offers as a device is claimed with all its nodes and
// network interfaces, also those that the resource did not select: whoever
// holds one of them would share the device. A node that a resource offers by
// itself is claimed alone, and the rest of its hardware is free, but hardware is
// no device of a later resource that would come with a node that is claimed: it
// gets it whole or not at all. Functions of one IOMMU group that are bound to
// VFIO are claimed together: whoever has one of them reaches the others.
// Companions don't count. Mediated devices are hardware of their own beside
// the function that they are parts of.
//
// What is claimed by resources with shared = true, a resource with shared = true
// gets, too.
type claims struct {
	// owners are the first resources that claimed hardware, a node, or what
	// candidate.other names; ids are those of IDs.
	owners map[any]*config.Resource
	ids    map[string]*config.Resource
	// functions says which resource first offers a PCI function, and which a
	// mediated device of it. Drivers differ in whether that can be, so both are
	// offered.
	functions map[functionUse]*config.Resource
}

type functionUse struct {
	function *device.Hardware
	mediated bool
}

// claim claims for r what it may have of what it selected, and returns that. What
// it did not get is noted.
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
	for _, owner := range slices.SortedFunc(maps.Keys(denied), func(a, b *config.Resource) int { return cmp.Compare(a.Place, b.Place) }) {
		m.note(r.Place, "the first resource in the configuration that selects a device gets it; match and exclude tell them apart, and shared = true in both gives it to both",
			"not offered here, since %s has it: %s", owner.Place, andMore(denied[owner][0].describe(), len(denied[owner])))
	}
	return got
}

// owner is the resource that keeps r from having a device, since it has that
// or one of its nodes; nil for none.
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

// claims are what a device takes from all others.
func (c *candidate) claims() []any {
	var all []any
	switch {
	case c.single && len(c.picks) > 0:
		all = append(all, c.picks[0].node)
	case c.hardware != nil:
		all = append(all, c.hardware)
	}
	if other := c.other(); other != "" {
		all = append(all, other)
	}
	return all
}

// other names what a device takes that is neither hardware nor a node. What is
// virtual belongs to its resource by its name.
func (c *candidate) other() string {
	switch {
	case len(c.paths) > 0:
		return "path " + c.paths[0].path
	case c.cdi != nil:
		return "cdi " + c.cdi.Name
	}
	if g := c.iommuGroup(); g != "" {
		return "group " + g
	}
	return ""
}

// overlaps notes where one resource has a function, and another has parts of
// it.
func (m *run) overlaps(r *config.Resource, devices []candidate) {
	var found []string
	other, what := (*config.Resource)(nil), ""
	for _, c := range devices {
		for _, h := range c.members() {
			use := functionUse{h, false}
			if h.MDev != nil {
				use = functionUse{h.Parent, true}
			} else if h.PCI == nil {
				continue
			}
			if m.claims.functions[use] == nil {
				m.claims.functions[use] = r
			}
			owner := m.claims.functions[functionUse{use.function, !use.mediated}]
			if owner == nil || owner == r || owner.Shared && r.Shared || other != nil && other != owner {
				continue
			}
			if other = owner; what == "" && use.mediated {
				what = "the PCI function that it is a part of"
			} else if what == "" {
				what = "mediated devices of it"
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
// VFIO, "" where it does not.
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
	case c.cdi != nil:
		return "CDI device " + c.cdi.Name
	case c.virtual != nil:
		return fmt.Sprintf("virtual device %q", c.virtual.Name)
	case len(c.paths) > 0:
		return c.paths[0].path
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

// andMore is the first of n things, in words.
func andMore(first string, n int) string {
	if n < 2 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, n-1)
}
