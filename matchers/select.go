package matchers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// candidate is what a resource selects as one device: nodes by path, with their
// hardware if they have any; or a path, a CDI device or a virtual device.
type candidate struct {
	hardware *device.Hardware
	picks    []pick
	// single: one node, without the rest of its hardware.
	single  bool
	paths   []pathPick
	cdi     *device.CDIDevice
	virtual *config.Virtual
	// name names one of these in messages.
	name   string
	groups []*group // none but for vfio = true
	// united is the hardware of a device that combines several, in the order of
	// the snapshot.
	united []*device.Hardware
	// pool: everything that the resource selects. value: all hardware with that
	// value of the variable of group_by.
	pool  bool
	value string
	// parts that it combines.
	parts []candidate
	// dangerous: a match that selected it has dangerous = true.
	dangerous bool
}

// pick is a selected node or network interface, and the first match that
// selected it, which has its path in the container.
type pick struct {
	node  *device.Node
	match *predicate
	// hardware of the device that the node is part of: its own, except for nodes of an
	// IOMMU group.
	hardware *device.Hardware
}

// pathPick is a host path to mount, and the match that selected it.
type pathPick struct {
	path  string
	match *config.Match
}

// members is the hardware of a device.
func (c *candidate) members() []*device.Hardware {
	if c.united == nil && c.hardware != nil {
		return []*device.Hardware{c.hardware}
	}
	return c.united
}

// nodes are the picks that are device nodes.
func (c *candidate) nodes() []pick {
	return slices.DeleteFunc(slices.Clone(c.picks), func(p pick) bool { return p.node.Net != nil })
}

// selection collects the candidates of a resource.
type selection struct {
	*run
	r                 *config.Resource
	matches, excludes []*predicate
	picks             []pick
	// whole is the hardware that is a device even without a node, and whether a
	// match that selects it has dangerous = true.
	whole map[*device.Hardware]bool
	// groups selected with vfio = true, by number.
	groups map[string]*group
	// others are paths, CDI devices and virtual devices.
	others []candidate
}

// candidates finds the devices of a resource in the order of the snapshot, including
// devices that other resources claim.
//
// A node is in if any match selects it, and out if any exclude does. Hardware
// is a device if one of its nodes is left, or if it never had one selected
// and a match without a glob matches it. A pool or a group is found in parts,
// which other resources may claim: hardware where a match names it, single nodes
// otherwise.
func (m *run) candidates(r *config.Resource) []candidate {
	clear(m.picked)
	s := &selection{
		run:    m,
		r:      r,
		whole:  map[*device.Hardware]bool{},
		groups: map[string]*group{},
	}
	s.matches, s.excludes = m.predicates(r)
	for _, p := range s.matches {
		switch {
		case p.VFIO:
			s.addVFIO(p)
		case p.Mount:
			s.addPaths(p.Match)
		case !p.CDIDevice.Empty():
			s.addCDI(p.Match)
		case len(p.Virtual) > 0:
			s.addVirtual(p.Match)
		case p.NamesHardware() && p.Glob.Empty():
			s.addHardware(p)
		default:
			s.addNodes(p)
		}
	}
	s.exclude()
	s.unite()

	found := make([]candidate, 0, len(s.picks)+len(s.whole)+len(s.others))
	sort.Slice(s.picks, func(i, j int) bool {
		a := &s.picks[i]
		b := &s.picks[j]
		return cmp.Or(strings.Compare(hardwarePath(a.hardware), hardwarePath(b.hardware)), strings.Compare(a.node.Path, b.node.Path)) < 0
	})
	for rest := s.picks; len(rest) > 0; {
		h := rest[0].hardware
		n := 1
		for n < len(rest) && h != nil && rest[n].hardware == h {
			n++
		}
		picks := rest[:n:n]
		rest = rest[n:]
		if h != nil && s.together(picks) {
			found = append(found, candidate{
				hardware:  h,
				picks:     picks,
				groups:    s.groupOf(h),
				dangerous: slices.ContainsFunc(picks, dangerousPick),
			})
		} else {
			for i, p := range picks {
				found = append(found, candidate{
					hardware:  h,
					picks:     picks[i : i+1 : i+1],
					single:    true,
					dangerous: p.match.Dangerous,
				})
			}
		}
	}
	for h, dangerous := range s.whole {
		if r.Each != config.EachNode {
			found = append(found, candidate{hardware: h, dangerous: dangerous})
		}
	}
	sortByHardware(found)
	found = append(found, s.others...)
	for _, p := range s.matches {
		if p.Required {
			found = m.withNodeOf(p, r, found)
		}
	}
	return found
}

// withNodeOf keeps the candidates whose pool, group or hardware has a node that a required
// match selects, also if the nodes are devices of their own. Mounts belong to no hardware.
func (m *run) withNodeOf(p *predicate, r *config.Resource, found []candidate) []candidate {
	deviceOf := func(c *candidate) any {
		if r.Each == config.EachAll {
			return r
		}
		if value, _ := m.groupValue(r, c); value != "" {
			return value
		}
		return c.hardware
	}
	has := map[any]bool{(*device.Hardware)(nil): true}
	for i := range found {
		c := &found[i]
		if slices.ContainsFunc(c.picks, p.matchesPick) || slices.ContainsFunc(c.paths, func(by pathPick) bool { return by.match == p.Match }) {
			has[deviceOf(c)] = true
		}
	}
	if p.Mount && r.Each != config.EachAll {
		return found
	}
	return slices.DeleteFunc(found, func(c candidate) bool {
		return !has[deviceOf(&c)]
	})
}

func dangerousPick(p pick) bool { return p.match.Dangerous }

// sortByHardware sorts candidates by the sysfs path of their hardware.
func sortByHardware(list []candidate) {
	sort.SliceStable(list, func(i, j int) bool {
		return hardwarePath(list[i].hardware) < hardwarePath(list[j].hardware)
	})
}

// together reports whether the nodes of one hardware are one device.
func (s *selection) together(picks []pick) bool {
	switch s.r.Each {
	case config.EachNode:
		return false
	case config.EachAll:
		return slices.ContainsFunc(picks, func(p pick) bool {
			return p.match.NamesHardware()
		})
	}
	return true
}

func (s *selection) pick(n *device.Node, p *predicate) {
	if !s.picked[n] {
		s.picked[n] = true
		s.picks = append(s.picks, pick{node: n, match: p, hardware: n.Hardware})
	}
}

// addNodes selects nodes for a match with a glob, or without hardware.
func (s *selection) addNodes(p *predicate) {
	nodes := slices.Values(s.snap.Nodes)
	if !p.Glob.Empty() {
		nodes = s.globbed(p.Glob)
	}
	for n := range nodes {
		if !s.picked[n] && p.matchesExceptGlob(n, n.Hardware) {
			s.pick(n, p)
		}
	}
}

// addHardware selects hardware with all its nodes and network interfaces, for a
// match without a glob.
func (s *selection) addHardware(p *predicate) {
	for _, h := range s.snap.Hardware {
		if p.onlyNets() || !p.matchesHardware(h) {
			continue
		}
		if !p.SelectsNets() && p.matchesNode(h, nil) {
			s.whole[h] = s.whole[h] || p.Dangerous
		}
		for _, n := range h.Nodes {
			// The node of an IOMMU group belongs to its other functions, too.
			if (!isGroupNode(n) || h.MDev != nil) && !s.picked[n] && p.matchesNode(n.Hardware, n) {
				s.pick(n, p)
			}
		}
	}
	if !p.SelectsNets() {
		return
	}
	for _, n := range s.snap.Nets {
		if p.matches(n, n.Hardware) {
			s.pick(n, p)
		}
	}
}

// addPaths selects paths to mount. Device nodes are left out: the container's
// device cgroup denies opening a node that is only mounted.
func (s *selection) addPaths(m *config.Match) {
	for _, p := range s.files(m.Place, m.Glob) {
		known := slices.ContainsFunc(s.others, func(o candidate) bool { return o.name == p })
		if known || s.at(p) != nil || slices.ContainsFunc(s.excludes, func(e *predicate) bool {
			return e.matchesPath(p)
		}) {
			continue
		}
		s.others = append(s.others, candidate{
			single:    true,
			name:      p,
			paths:     []pathPick{{p, m}},
			dangerous: m.Dangerous,
		})
	}
}

// addCDI selects CDI devices of the host by qualified name. By convention the device
// "all" is every device, so that no wildcard matches it.
func (s *selection) addCDI(m *config.Match) {
	for i := range s.CDIDevices {
		d := &s.CDIDevices[i]
		known := slices.ContainsFunc(s.others, func(o candidate) bool { return o.cdi == d })
		named := slices.ContainsFunc(m.CDIDevice.Alternatives(), func(a pattern.Alternative) bool {
			text, whole := a.Literal()
			return whole && text == d.Name
		})
		if known || !m.CDIDevice.Match(d.Name) || strings.HasSuffix(d.Name, "=all") && !named {
			continue
		}
		var hardware []*device.Hardware
		for _, node := range d.Nodes {
			if n := s.at(node.Path); !node.Common && n != nil && n.Hardware != nil {
				hardware = append(hardware, n.Hardware)
			}
		}
		s.others = append(s.others, candidate{
			single:    true,
			name:      "CDI device " + d.Name,
			cdi:       d,
			united:    sortHardware(hardware),
			dangerous: m.Dangerous,
		})
	}
}

func (s *selection) addVirtual(m *config.Match) {
	for i := range m.Virtual {
		d := &m.Virtual[i]
		s.others = append(s.others, candidate{
			single:    true,
			name:      fmt.Sprintf("virtual device %q", d.Name),
			virtual:   d,
			dangerous: m.Dangerous,
		})
	}
}

// sortHardware sorts hardware as a snapshot does, without repeats.
func sortHardware(hardware []*device.Hardware) []*device.Hardware {
	slices.SortFunc(hardware, func(a, b *device.Hardware) int {
		return strings.Compare(a.Path, b.Path)
	})
	return slices.Compact(hardware)
}

// exclude drops what any exclude selects. Hardware with a selected node is a device
// only by its nodes from here on.
func (s *selection) exclude() {
	s.picks = slices.DeleteFunc(s.picks, func(p pick) bool {
		delete(s.whole, p.node.Hardware)
		return !p.match.VFIO && slices.ContainsFunc(s.excludes, func(e *predicate) bool {
			return e.matches(p.node, p.node.Hardware)
		})
	})
	maps.DeleteFunc(s.whole, func(h *device.Hardware, _ bool) bool {
		return slices.ContainsFunc(s.excludes, func(e *predicate) bool {
			return e.matchesWhole(h)
		})
	})
}

// matchesPick reports whether the match selects a pick.
func (p *predicate) matchesPick(by pick) bool {
	return by.match == p || p.matches(by.node, by.node.Hardware)
}

// combine makes devices of the claimed parts: one of all with each = "all", and
// with group_by one of all hardware with the same value.
func (m *run) combine(r *config.Resource, parts []candidate) []candidate {
	switch {
	case len(parts) == 0:
		return nil
	case r.Each == config.EachAll:
		pool := merge(parts)
		pool.pool = true
		return []candidate{pool}
	case r.GroupBy == "":
		return parts
	}
	var out []candidate
	groups := map[string][]candidate{}
	for _, c := range parts {
		value, unread := m.groupValue(r, &c)
		if c.value = value; unread { // it may be part of any group
		} else if value == "" {
			out = append(out, c)
		} else {
			groups[value] = append(groups[value], c)
		}
	}
	for value, list := range groups {
		one := merge(list)
		one.value = value
		one.hardware = list[0].hardware
		out = append(out, one)
	}
	sortByHardware(out)
	return out
}

// groupValue is the value of the variable of group_by, empty for none or if it could not be
// read yet.
func (m *run) groupValue(r *config.Resource, c *candidate) (value string, unread bool) {
	if c.hardware == nil || r.GroupBy == "" {
		return "", false
	}
	text, err := m.builder(r, c, "").joined(device.Text{{Var: r.GroupBy}}, "")
	var none noValue
	return text.String(), errors.As(err, &none) && none.unread
}

// merge makes one device of several parts.
func merge(parts []candidate) candidate {
	one := candidate{parts: parts}
	for _, p := range parts {
		one.united = append(one.united, p.members()...)
		one.groups = append(one.groups, p.groups...)
		one.picks = append(one.picks, p.picks...)
		one.paths = append(one.paths, p.paths...)
		one.dangerous = one.dangerous || p.dangerous
	}
	one.united = sortHardware(one.united)
	sort.Slice(one.picks, func(i, j int) bool { return one.picks[i].node.Path < one.picks[j].node.Path })
	sort.Slice(one.paths, func(i, j int) bool { return one.paths[i].path < one.paths[j].path })
	return one
}
