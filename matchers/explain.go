package matchers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Explanation is why a resource has its devices, or none. The names of the JSON fields
// are an API.
type Explanation struct {
	Resource string `json:"resource"` // as in the configuration
	// Offered are the IDs of its devices.
	Offered []string `json:"offered"`
	// Reason is why nothing, or nothing else, is offered; empty if nothing is missing.
	Reason  string         `json:"reason"`
	Matches []MatchOutcome `json:"matches"`
	// Variables of the resource, with their values for the explained device.
	Variables []Variable `json:"variables,omitempty"`
}

// MatchOutcome is what a match selects.
type MatchOutcome struct {
	Place      string      `json:"place"`
	Selected   []string    `json:"selected"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one condition of a match, applied to what the conditions before it leave;
// a condition that fits nothing is skipped for the next.
type Condition struct {
	Key  string `json:"key"`  // "glob", "usb.id"
	Want string `json:"want"` // patterns
	Fits int    `json:"fits"`
	// Nearest is the nearest value and its location, if nothing fits.
	Nearest string `json:"nearest"`
}

// String is a condition that fits nothing.
func (c Condition) String() string {
	text := strings.TrimSpace(c.Key+" "+c.Want) + " fits nothing"
	if c.Nearest != "" {
		text += ": " + c.Nearest
	}
	return text
}

// Explain explains each resource of a configuration on a host, as far as some hardware
// or a node is concerned; both nil is the whole host. It matches as Match does, and
// then applies the same predicates to one condition after the other.
func Explain(
	cfg *config.Config,
	snap *device.Snapshot,
	forms device.Forms,
	opts Options,
	h *device.Hardware,
	n *device.Node,
) []Explanation {
	m := newRun(cfg, snap, forms, opts)
	inactive := m.matchAll(cfg)
	m.budget = newBudget(cfg)
	var all []Explanation
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		e := Explanation{Resource: r.Name, Offered: []string{}, Matches: []MatchOutcome{}}
		note, isInactive := inactive[r]
		unknown := m.result.Unknown[r]
		if isInactive {
			e.Reason = note.Text
		} else if unknown != "" {
			m.budget.begin()
			m.offered(r, &e, target{h, n})
			e.Reason = unknown
		} else {
			m.budget.begin()
			m.explain(r, &e, target{h, n})
		}
		all = append(all, e)
	}
	return all
}

// target is a node with its hardware, or hardware as a whole. As the subject of an
// explanation, the zero target is the whole host.
type target struct {
	hardware *device.Hardware
	node     *device.Node
}

func (t target) String() string {
	if t.node != nil {
		return t.node.Path
	}
	return t.hardware.Name
}

// targets are the choices of a match, limited to of.
func (m *run) targets(match *config.Match, of target) []target {
	var all []target
	whole := match.NamesHardware() && match.Glob.Empty() && (!match.Has("net") || match.VFIO)
	for _, o := range m.snap.Hardware {
		if whole && !o.IsRootHub() && (of == target{} || o == of.hardware) {
			all = append(all, target{o, nil})
		}
	}
	for _, o := range slices.Concat(m.snap.Nodes, m.snap.Nets) {
		if !whole && (of.node == nil || o == of.node) && (of.hardware == nil || o.Hardware == of.hardware) && (o.Net == nil || match.Has("net")) {
			all = append(all, target{o.Hardware, o})
		}
	}
	return all
}

// selects reports whether a match selects a target.
func (p *predicate) selects(t target) bool {
	if t.node != nil {
		return p.matches(t.node, t.hardware)
	}
	return (!p.VFIO || vfioGroup(t.hardware) != "") && p.matchesHardware(t.hardware) &&
		(p.matchesNode(t.hardware, nil) || slices.ContainsFunc(t.hardware.Nodes, func(n *device.Node) bool {
			return p.matchesNode(n.Hardware, n)
		}))
}

// single is a condition of a match, and a match with it alone.
type single struct {
	condition
	*predicate
}

// singles are the conditions of a match. Their tables, also empty ones, say what it is
// about.
func (p *predicate) singles() (all []single) {
	add := func(c condition, m config.Match, conditions ...condition) {
		all = append(all, single{c, newPredicate(p.run, &m, false, conditions...)})
	}
	if !p.Glob.Empty() {
		path := known(func(_ *device.Hardware, n *device.Node) []string { return []string{n.Path} })
		add(condition{key: "glob", want: p.Glob, values: path}, config.Match{Glob: p.Glob})
	}
	bare := *p.Match
	bare.Glob = pattern.Values{}
	bare.VFIO = false
	for _, name := range []string{"usb", "pci", "mdev", "net"} {
		if t := p.Hardware[name]; t != nil && len(t) == 0 {
			add(condition{key: name}, bare)
		}
	}
	for _, c := range p.conditions {
		add(c, bare, c)
	}
	if bare.VFIO = p.VFIO; p.VFIO {
		add(condition{key: "vfio", values: known(func(h *device.Hardware, _ *device.Node) []string {
			if h == nil || h.PCI == nil {
				return nil
			}
			return []string{"driver " + h.PCI.Driver}
		})}, bare)
	}
	return all
}

// outcome applies the conditions of a match one after the other. One that fits nothing
// is left out for the rest, so that each has its own reason.
func (m *run) outcome(r *config.Resource, match *config.Match, of target) (out MatchOutcome, failed int) {
	out = MatchOutcome{Place: match.Place[strings.LastIndex(match.Place, ": ")+2:], Selected: []string{}, Conditions: []Condition{}}
	if key, v := whole(match); key != "" {
		if of == (target{}) {
			for _, c := range m.candidates(&config.Resource{Match: []config.Match{*match}, Each: r.Each}) {
				out.Selected = append(out.Selected, c.describe())
			}
		}
		out.Conditions = append(out.Conditions, Condition{Key: key, Want: wanted(v), Fits: len(out.Selected)})
		if len(out.Selected) == 0 {
			failed = 1
		}
		return out, failed
	}
	p := m.predicate(match, false)
	all := m.targets(match, of)
	if p.pci && len(all) > 0 && !slices.ContainsFunc(all, func(t target) bool {
		return !p.ignores(t.hardware)
	}) {
		out.Conditions = append(out.Conditions, Condition{Key: "pci.sriov", Nearest: `a sub-function is selected by "sf" only`})
		return out, 1
	}
	one := of != target{}
	rest := all
	narrowed := one
	singles := p.singles()
	for _, c := range singles {
		fitting := slices.DeleteFunc(slices.Clone(rest), func(t target) bool {
			return !c.selects(t)
		})
		out.Conditions = append(out.Conditions, Condition{Key: c.key, Want: wanted(c.want), Fits: len(fitting)})
		if len(fitting) == 0 {
			failed++
		} else {
			rest = fitting
			narrowed = true
		}
	}
	for i, c := range singles {
		if out.Conditions[i].Fits == 0 {
			out.Conditions[i].Nearest = c.nearest(all, rest, one, narrowed)
		}
	}
	if failed > 0 {
		return out, failed
	}
	for _, t := range rest {
		if p.selects(t) {
			out.Selected = append(out.Selected, t.String())
		}
	}
	if len(out.Selected) == 0 { // such as interface and interface_class, of two interfaces
		out.Conditions = append(out.Conditions, Condition{Key: "all together"})
		failed = 1
	}
	return out, failed
}

// whole is the only condition of a match that selects neither nodes nor hardware.
func whole(match *config.Match) (key string, want pattern.Values) {
	switch {
	case match.Mount:
		return "glob", match.Glob
	case !match.CDIDevice.Empty():
		return "cdi_device", match.CDIDevice
	case len(match.Virtual) > 0:
		return "virtual", pattern.Values{}
	}
	return "", pattern.Values{}
}

// wanted is a list of patterns in prose.
func wanted(v pattern.Values) string {
	quoted := []string{}
	for _, p := range v.Patterns() {
		quoted = append(quoted, fmt.Sprintf("%q", p))
	}
	return strings.Join(quoted, " or ")
}

// nearest describes a target that fits the condition but not all others, or else the
// nearest value of the rest, which fits all others. one: a single device is explained.
// narrowed: the rest fits some condition, so that distant values count, too.
func (p single) nearest(all, rest []target, one, narrowed bool) string {
	if p.about != sysfsDir {
		for _, t := range all {
			if p.selects(t) && (t.node == nil || !strings.HasPrefix(t.node.Path, "/dev/bus/")) {
				return fmt.Sprintf("it fits %s, which another condition leaves out", t)
			}
		}
	}
	if p.about == sysfsDir && !narrowed {
		return ""
	}
	best := 0
	found := ""
	for _, t := range rest {
		values, unread := p.have(t)
		if unread && found == "" {
			found = "that of " + t.String() + " can't be read yet"
		}
		for _, have := range values {
			edits := 1 << 10
			but := ""
			for _, a := range p.want.Alternatives() {
				edits = min(edits, pattern.Distance(have, a.Shape()))
			}
			literal, _ := p.want.Literal()
			switch {
			case !p.want.Empty() && (p.want.Match(strings.ToLower(have)) || p.want.Match(strings.ToUpper(have))):
				edits = 0
				but = ", which differs in letter case"
			case slices.Contains(p.want.Patterns(), have):
				edits = 0
				but = ": with its wildcards escaped it is " + pattern.Quote(have)
			case len(literal) > 2 && strings.Contains(have, literal):
				edits = min(edits, 1)
				but = ", which contains it: a pattern matches whole values"
			}
			if have == "" || !narrowed && edits > max(1, len(have)/4) || found != "" && edits >= best {
				continue
			}
			best = edits
			found = have + but
			if one {
				found = "it has " + found
			} else if t.String() == have {
				found = "nearest " + found
			} else {
				found = "nearest " + have + " on " + t.String() + but
			}
		}
	}
	return found
}

// have lists the values of a target for the condition.
func (c *condition) have(t target) (values []string, unread bool) {
	if c.hardware != nil && t.hardware != nil {
		return []string{c.hardware(t.hardware)}, false
	} else if c.values != nil {
		return c.values(t.hardware, t.node)
	}
	return nil, false
}

// concerns reports whether a candidate has the explained hardware or node.
func (c *candidate) concerns(of target) bool {
	if h, n := of.hardware, of.node; n != nil {
		return slices.ContainsFunc(c.picks, func(p pick) bool { return p.node == n }) || c.node() == nil && n.Hardware != nil && slices.Contains(c.members(), n.Hardware)
	} else if h != nil {
		return slices.Contains(c.members(), h) || slices.ContainsFunc(c.picks, func(p pick) bool { return p.node.Hardware == h })
	}
	return true
}

// node is the first node of a candidate, nil if it has none.
func (c *candidate) node() *device.Node {
	if len(c.picks) == 0 {
		return nil
	}
	return c.picks[0].node
}

// explain explains a resource that is active.
func (m *run) explain(r *config.Resource, e *Explanation, of target) {
	concerned := func(r *config.Resource) []candidate {
		return slices.DeleteFunc(m.candidates(r), func(c candidate) bool {
			return !c.concerns(of)
		})
	}
	selects, why := m.outcomes(r, e, of)
	found := concerned(r)
	var taken []string
	var owner *config.Resource
	for i := range found {
		if by := m.claims.owner(r, &found[i]); by != nil {
			owner = by
			taken = append(taken, found[i].describe())
		}
	}
	m.offered(r, e, of)
	switch {
	case len(taken) > 0:
		e.Reason = owner.Name + " has " + andMore(taken[0], len(taken))
	case len(e.Offered) > 0:
	case len(found) > 0:
		e.Reason = "left out: see generic-dp check"
	case selects:
		without := *r
		without.Exclude = nil
		if left := concerned(&without); len(left) > 0 {
			e.Reason = "exclude leaves out " + andMore(left[0].describe(), len(left))
		} else {
			e.Reason = "a match with required = true selects no node of it"
		}
	default:
		e.Reason = cmp.Or(why, "nothing matches")
	}
}

// outcomes adds the outcomes of the matches of a resource. If none selects anything, why is
// the reason of the one that comes nearest to it.
func (m *run) outcomes(r *config.Resource, e *Explanation, of target) (selects bool, why string) {
	least := 0
	for i := range r.Match {
		out, failed := m.outcome(r, &r.Match[i], of)
		e.Matches = append(e.Matches, out)
		selects = selects || failed == 0
		if failed == 0 || least > 0 && failed >= least {
			continue
		}
		var reasons []string
		for _, c := range out.Conditions {
			if c.Fits == 0 {
				reasons = append(reasons, c.String())
			}
		}
		least = failed
		why = strings.Join(reasons, "; ")
		if len(r.Match) > 1 {
			why = out.Place + ": " + why
		}
	}
	return selects, why
}

// offered adds the devices that a resource offers, and its variables for one of them.
func (m *run) offered(r *config.Resource, e *Explanation, of target) {
	byName := m.byName(r, m.combine(r, m.claim(r, m.candidates(r))))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		for _, c := range byName[name] {
			b := m.builder(r, c, name)
			if m.claims.ids[b.id] != r || slices.Contains(e.Offered, b.id) || !c.concerns(of) {
				continue
			}
			e.Offered = append(e.Offered, b.id)
			if of != (target{}) {
				names := append([]string{"id", "resource", "container_path"}, r.Variables...)
				e.Variables = append(e.Variables, m.offer(r, c, name).table(names)...)
			}
		}
	}
	slices.Sort(e.Offered)
}

// Variable is a variable with its values for a device.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// table lists the values of variables that do not depend on the container.
func (b *builder) table(names []string) (all []Variable) {
	for i, name := range names {
		value, err := b.joined(device.Text{{Var: name}}, " ")
		if err == nil && len(value.Vars()) == 0 && slices.Index(names, name) == i {
			all = append(all, Variable{"${" + name + "}", value.String()})
		}
	}
	return all
}

// Variables lists the variables of hardware, or of a node of it, that have a value
// whatever the resource.
func Variables(snap *device.Snapshot, forms device.Forms, opts Options, h *device.Hardware, n *device.Node) []Variable {
	m := newRun(&config.Config{}, snap, forms, opts)
	c := &candidate{hardware: h}
	anything := m.predicate(&config.Match{}, false)
	if n != nil {
		c.picks = []pick{{node: n, match: anything, hardware: h}}
		c.single = h == nil
	} else {
		for _, n := range h.Nodes {
			c.picks = append(c.picks, pick{node: n, match: anything, hardware: h})
		}
	}
	b := m.builder(&config.Resource{NUMA: config.NUMA{Auto: true}}, c, "")
	names := []string{"id", "devnode", "kernel", "numa", "node_name"}
	for _, a := range device.Attributes() {
		names = append(names, a.Name())
	}
	return b.table(names)
}
