package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// claims are what resources have taken, in the order of the configuration.
//
// Hardware that a resource offers as a device is taken with all its nodes,
// also those that the resource did not select: whoever holds one of them
// would share the device. A node that a resource offers by itself is taken
// alone, and the rest of its hardware is free, but hardware is no device of a
// later resource that would hand over a node that is taken: it gets it whole
// or not at all. Functions of one IOMMU group that are bound to VFIO are taken
// together: whoever has one of them reaches the others. Companions don't count.
type claims struct {
	hardware map[*device.Hardware]*config.Resource
	groups   map[string]*config.Resource // IOMMU groups, by number
	nodes    map[*device.Node]*config.Resource
	ids      map[string]*config.Resource
	// lost is what the current resource selected and did not get, by the
	// resource that has it.
	lost map[*config.Resource][]selected
	// twins are its devices whose ID was taken.
	twins []string
}

func newClaims() *claims {
	return &claims{
		hardware: map[*device.Hardware]*config.Resource{},
		groups:   map[string]*config.Resource{},
		nodes:    map[*device.Node]*config.Resource{},
		ids:      map[string]*config.Resource{},
	}
}

// take claims for r what is free of what it selected, and returns that.
func (c *claims) take(r *config.Resource, found []selected) []selected {
	c.lost, c.twins = map[*config.Resource][]selected{}, nil
	var got []selected
	for _, s := range found {
		if first := c.owner(s); first != nil && first != r {
			c.lost[first] = append(c.lost[first], s)
			continue
		}
		if g := s.vfioGroup(); g != "" {
			c.groups[g] = r
		}
		if s.single {
			c.nodes[s.picks[0].node] = r
		} else {
			c.hardware[s.hardware] = r
		}
		got = append(got, s)
	}
	return got
}

// owner is the resource that has a device or one of its nodes, nil for none.
func (c *claims) owner(s selected) *config.Resource {
	if s.hardware != nil {
		if first := c.hardware[s.hardware]; first != nil {
			return first
		}
		if first := c.groups[s.vfioGroup()]; first != nil {
			return first
		}
	}
	for _, p := range s.picks {
		if first := c.nodes[p.node]; first != nil {
			return first
		}
	}
	return nil
}

// id claims the ID of a device for r and reports whether it was free. It is
// not where two USB devices have one serial and nobody has decided which of
// them goes by it.
func (c *claims) id(r *config.Resource, s selected, id string) bool {
	if c.ids[id] != nil {
		c.twins = append(c.twins, fmt.Sprintf("%s is left out: another device has its ID %q", s.describe(), id))
		return false
	}
	c.ids[id] = r
	return true
}

// notes say which devices of r it did not get.
func (c *claims) notes(r *config.Resource) []Note {
	var notes []Note
	for first, lost := range c.lost {
		text := lost[0].describe()
		if more := len(lost) - 1; more > 0 {
			text = fmt.Sprintf("%s and %d more", text, more)
		}
		notes = append(notes, Note{
			Place: r.Place,
			Text:  fmt.Sprintf("not offered here, since %s has it: %s", first.Place, text),
			Hint:  "the first resource in the configuration that selects a device gets it; match and exclude tell them apart",
		})
	}
	for _, text := range c.twins {
		notes = append(notes, Note{Place: r.Place, Text: text, Error: true})
	}
	slices.SortFunc(notes, func(a, b Note) int { return strings.Compare(a.Text, b.Text) })
	return notes
}

// vfioGroup is the number of the IOMMU group that a device reaches through
// VFIO, "" where it does not.
func (s selected) vfioGroup() string {
	if s.group != nil {
		return s.group.number
	}
	return vfioGroup(s.hardware)
}

// describe names a device for an administrator.
func (s selected) describe() string {
	text := ""
	if s.single {
		text = s.picks[0].node.Path
	} else {
		text = describe(s.hardware)
	}
	if g := s.vfioGroup(); g != "" {
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
	}
	return "platform device " + h.Name
}
