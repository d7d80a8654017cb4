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
// Hardware that a resource offers as a device is taken with all its nodes and
// network interfaces, also those that the resource did not select: whoever
// holds one of them would share the device. A node that a resource offers by
// itself is taken alone, and the rest of its hardware is free, but hardware is
// no device of a later resource that would hand over a node that is taken: it
// gets it whole or not at all. Functions of one IOMMU group that are bound to
// VFIO are taken together: whoever has one of them reaches the others.
// Companions don't count. Mediated devices are hardware of their own beside
// the function that they are parts of.
//
// What is taken by resources with shared = true, a resource with shared = true
// gets, too.
type claims struct {
	// hardware, nodes and others are what is taken, and by which resource first.
	hardware map[*device.Hardware]*config.Resource
	nodes    map[*device.Node]*config.Resource
	others   map[string]*config.Resource // "group 12", "path /x", "cdi a/b=c"
	ids      map[string]*config.Resource
	// lost is what the current resource selected and did not get, by the
	// resource that has it.
	lost map[*config.Resource]*lost
	// twins are its devices whose ID was taken.
	twins []string
}

// lost is how many devices a resource did not get.
type lost struct {
	first selected
	n     int
}

func newClaims() *claims {
	return &claims{
		hardware: map[*device.Hardware]*config.Resource{},
		nodes:    map[*device.Node]*config.Resource{},
		others:   map[string]*config.Resource{},
		ids:      map[string]*config.Resource{},
	}
}

// take claims for r what it may have of what it selected, and returns that.
func (c *claims) take(r *config.Resource, found []selected) []selected {
	c.lost, c.twins = map[*config.Resource]*lost{}, nil
	got := found[:0]
	for i := range found {
		s := &found[i]
		if first := c.owner(r, s); first != nil {
			if c.lost[first] == nil {
				c.lost[first] = &lost{first: *s}
			}
			c.lost[first].n++
			continue
		}
		if other := s.other(); other != "" {
			claim(c.others, other, r)
		}
		switch {
		case s.single && len(s.picks) > 0:
			claim(c.nodes, s.picks[0].node, r)
		case s.hardware != nil:
			claim(c.hardware, s.hardware, r)
		}
		got = append(got, *s)
	}
	return got
}

// claim notes who has something first.
func claim[T comparable](by map[T]*config.Resource, what T, r *config.Resource) {
	if by[what] == nil {
		by[what] = r
	}
}

// owner is the resource that keeps r from having a device, since it has that
// or one of its nodes; nil for none.
func (c *claims) owner(r *config.Resource, s *selected) *config.Resource {
	keeps := func(first *config.Resource) bool {
		return first != nil && first != r && !(first.Shared && r.Shared)
	}
	if s.hardware != nil {
		if first := c.hardware[s.hardware]; keeps(first) {
			return first
		}
	}
	if other := s.other(); other != "" {
		if first := c.others[other]; keeps(first) {
			return first
		}
	}
	for _, p := range s.picks {
		if first := c.nodes[p.node]; keeps(first) {
			return first
		}
	}
	return nil
}

// other names what a device takes that is neither hardware nor a node. What is
// virtual belongs to its resource by its name.
func (s *selected) other() string {
	switch {
	case len(s.paths) > 0:
		return "path " + s.paths[0].path
	case s.cdi != nil:
		return "cdi " + s.cdi.Name
	}
	if g := s.vfioGroup(); g != "" {
		return "group " + g
	}
	return ""
}

// id claims the ID of a device for r and reports whether it was free. It is
// not where two USB devices have one serial and nobody has decided which of
// them goes by it.
func (c *claims) id(r *config.Resource, s *selected, id string) bool {
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
		notes = append(notes, Note{
			Place: r.Place,
			Text:  fmt.Sprintf("not offered here, since %s has it: %s", first.Place, andMore(lost.first.describe(), lost.n)),
			Hint:  "the first resource in the configuration that selects a device gets it; match and exclude tell them apart, and shared = true in both gives it to both",
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
func (s *selected) vfioGroup() string {
	if len(s.groups) > 0 {
		return s.groups[0].number
	}
	return vfioGroup(s.hardware)
}

// describe names a device for an administrator.
func (s *selected) describe() string {
	text := ""
	switch {
	case s.pool:
		return "the pool"
	case s.value != "":
		return fmt.Sprintf("the group %q", s.value)
	case s.cdi != nil:
		return "CDI device " + s.cdi.Name
	case s.virtual != nil:
		return fmt.Sprintf("virtual device %q", s.virtual.Name)
	case len(s.paths) > 0:
		return s.paths[0].path
	case s.single && s.picks[0].node.Net != nil:
		text = "network interface " + s.picks[0].node.Path
	case s.single:
		text = s.picks[0].node.Path
	default:
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
