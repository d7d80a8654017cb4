package matchers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// predicate is a match whose conditions have to hold one by one, as Explain shows them.
type predicate struct {
	*config.Match
	run                 *run
	conditions          []condition
	usb, pci, net, mdev bool // it has these tables
	subFunctions        bool // pci.sriov selects them
	// exclude: unknown values fit, since in doubt nothing is offered.
	exclude bool
}

func newPredicate(m *run, match *config.Match, exclude bool, conditions ...condition) *predicate {
	sriov := match.Hardware["pci"]["sriov"]
	return &predicate{
		Match:        match,
		run:          m,
		conditions:   conditions,
		exclude:      exclude,
		subFunctions: exclude || !sriov.Empty() && sriov.Match("sf"),
		usb:          match.Has("usb"),
		pci:          match.Has("pci"),
		net:          match.Has("net"),
		mdev:         match.Has("mdev"),
	}
}

// condition is a condition of a match, but for glob and vfio.
type condition struct {
	about subject
	key   string // "usb.id"
	want  pattern.Values
	// hardware or values is set.
	hardware func(*device.Hardware) string
	values   getter
}

// getter returns the values of hardware, or of its node unless that is nil. unread: some
// are not known yet.
type getter func(*device.Hardware, *device.Node) (values []string, unread bool)

// known is a getter of values that the snapshot has.
func known(values func(*device.Hardware, *device.Node) []string) getter {
	return func(h *device.Hardware, n *device.Node) ([]string, bool) {
		return values(h, n), false
	}
}

// subject is what a condition is about.
type subject byte

const (
	wholeHardware subject = iota
	netInterface
	anyNode  // of hardware without nodes, the hardware
	sysfsDir // likewise; last, since reads are slow
)

// predicates are those of the matches of a resource, and of its excludes.
func (m *run) predicates(r *config.Resource) (matches, excludes []*predicate) {
	list := func(of []config.Match, exclude bool) []*predicate {
		out := make([]*predicate, len(of))
		for i := range of {
			out[i] = m.predicate(&of[i], exclude)
		}
		return out
	}
	return list(r.Match, false), list(r.Exclude, true)
}

func (m *run) predicate(match *config.Match, exclude bool) *predicate {
	p := newPredicate(m, match, exclude)
	for i := range m.attributes {
		a := &m.attributes[i]
		want := match.Hardware[a.Table][a.Key]
		if want.Empty() {
			continue
		}
		c := condition{key: a.Name(), want: want, hardware: a.Hardware}
		if a.Hardware == nil {
			c.values = known(a.Of)
		}
		switch {
		case c.key == "usb.interface_class" && !match.Hardware["usb"]["interface"].Empty():
			c.about, c.values = anyNode, known(interfaceClasses(match.Hardware["usb"]["interface"], a.Of))
		case c.key == "pci.pf":
			c.values = known(m.physical)
			c.hardware = nil
		case a.Interface != nil:
			c.about = anyNode
		case a.Net != nil:
			c.about = netInterface
		}
		p.conditions = append(p.conditions, c)
	}
	add := func(about subject, key string, want pattern.Values, values getter) {
		if !want.Empty() {
			p.conditions = append(p.conditions, condition{
				about:  about,
				key:    key,
				want:   want,
				values: values,
			})
		}
	}
	add(anyNode, "subsystem", match.Subsystem, known(func(_ *device.Hardware, n *device.Node) []string {
		if n == nil {
			return nil
		}
		return []string{n.Subsystem}
	}))
	add(sysfsDir, "driver", match.Driver, known(func(h *device.Hardware, n *device.Node) []string {
		return []string{m.driver(dirsOf(h, n))}
	}))
	for _, name := range slices.Sorted(maps.Keys(match.Attr)) {
		key := "attr." + name
		written := fmt.Sprintf("attr.%q", name)
		add(sysfsDir, key, match.Attr[name], func(h *device.Hardware, n *device.Node) ([]string, bool) {
			return m.attr(match.Place, written, dirsOf(h, n), name)
		})
	}
	return p
}

// fits reports whether hardware, or a node of it unless that is nil, fits all conditions
// about a subject.
func (p *predicate) fits(about subject, h *device.Hardware, n *device.Node) bool {
	for i := range p.conditions {
		if c := &p.conditions[i]; c.about == about && !c.holds(h, n, p.exclude) {
			return false
		}
	}
	return true
}

// holds reports whether the condition holds; unread is the answer if values are unknown.
func (c *condition) holds(h *device.Hardware, n *device.Node, unread bool) bool {
	if c.hardware != nil {
		return c.want.Match(c.hardware(h))
	}
	values, unknown := c.values(h, n)
	if unknown {
		return unread
	}
	return c.want.Match(values...)
}

// interfaceClasses are the classes of the USB interfaces whose number fits, or of all: if
// none fits, usb.interface reports that.
func interfaceClasses(number pattern.Values, all func(*device.Hardware, *device.Node) []string) func(*device.Hardware, *device.Node) []string {
	return func(h *device.Hardware, n *device.Node) (classes []string) {
		if h != nil {
			for _, i := range h.InterfacesOf(n) {
				if number.Match(strconv.Itoa(i.Number)) {
					classes = append(classes, i.Class)
				}
			}
		}
		if classes == nil {
			return all(h, n)
		}
		return classes
	}
}

// physical names the physical function of a virtual one: its address and its network
// interfaces.
func (m *run) physical(h *device.Hardware, _ *device.Node) (names []string) {
	if vf := h.Function(); vf != nil {
		names = append(names, vf.PCI.PF)
		if pf := m.byAddress()[vf.PCI.PF]; pf != nil {
			for _, n := range pf.Nets {
				names = append(names, n.Path)
			}
		}
	}
	return names
}

// dirsOf lists the sysfs directories of a node, or of hardware, nearest first.
func dirsOf(h *device.Hardware, n *device.Node) []string {
	if n == nil {
		return []string{h.Path}
	}
	return sysDirs(n)
}

// onlyNets reports whether it selects network interfaces only.
func (p *predicate) onlyNets() bool {
	return p.SelectsNets() && !p.usb && !p.pci && !p.mdev
}

// matchesTables compares hardware with usb, pci and mdev, except for conditions on USB
// interfaces. Root hubs are parts of their controllers and never match; sub-functions, parts
// of functions, match pci only with subFunctions. Beside usb or mdev, pci is about
// the function above.
func (p *predicate) matchesTables(h *device.Hardware) bool {
	switch {
	case p.usb && (h.USB == nil || h.IsRootHub()):
		return false
	case p.mdev && h.MDev == nil:
		return false
	case p.pci && p.ignores(h):
		return false
	case p.pci && (h.Function() == nil || h.PCI == nil && !p.usb && !p.mdev):
		return false
	}
	return p.fits(wholeHardware, h, nil)
}

// ignores reports whether hardware is a sub-function, and the match selects none.
func (p *predicate) ignores(h *device.Hardware) bool {
	return !p.subFunctions && h != nil && h.PCI != nil && h.PCI.SRIOV == "sf"
}

// matchesHardware is matchesTables and net: one of the network interfaces of the
// hardware matches.
func (p *predicate) matchesHardware(h *device.Hardware) bool {
	return p.matchesTables(h) && (!p.net || slices.ContainsFunc(h.Nets, p.matchesNet))
}

// matchesNet compares a network interface with net.
func (p *predicate) matchesNet(n *device.Node) bool {
	return n.Net != nil && p.fits(netInterface, nil, n)
}

// matchesWhole reports whether the match selects hardware, regardless of its
// nodes.
func (p *predicate) matchesWhole(h *device.Hardware) bool {
	return p.NamesHardware() && p.Glob.Empty() && p.matchesHardware(h) && p.matchesNode(h, nil)
}

// matches reports whether the match selects a node or network interface, as one of h.
func (p *predicate) matches(n *device.Node, h *device.Hardware) bool {
	return (p.Glob.Empty() || n.Net == nil && p.run.matchesGlob(p.Glob, n)) && p.matchesExceptGlob(n, h)
}

// matchesExceptGlob is matches for a node that the glob matches. A network
// interface without hardware matches net only.
func (p *predicate) matchesExceptGlob(n *device.Node, h *device.Hardware) bool {
	switch {
	case n.Net == nil && p.NamesHardware() && (h == nil || !p.matchesHardware(h)):
		return false
	case n.Net != nil && p.net && !p.matchesNet(n):
		return false
	case n.Net != nil && (p.usb || p.pci || p.mdev) && (h == nil || !p.matchesTables(h)):
		return false
	case p.VFIO && !isGroupNode(n) && !isFunctionNode(n):
		return false
	}
	return p.matchesNode(n.Hardware, n)
}

// matchesNode compares a node of hardware with the conditions that are neither about its
// path nor about its hardware; without n it is the hardware, regardless of its nodes.
func (p *predicate) matchesNode(h *device.Hardware, n *device.Node) bool {
	return p.fits(anyNode, h, n) && p.fits(sysfsDir, h, n)
}

// matchesPath reports whether the match has nothing but a glob, which matches a
// host path.
func (p *predicate) matchesPath(host string) bool {
	return !p.Glob.Empty() && !p.NamesHardware() && len(p.conditions) == 0 && p.Glob.Match(host)
}
