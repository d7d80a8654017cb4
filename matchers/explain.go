package matchers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// Explanation is why a resource has the devices that it has, or none. The names of the
// JSON fields are an API.
type Explanation struct {
	Resource string `json:"resource"` // as in the configuration
	// Offered are the IDs of its devices.
	Offered []string `json:"offered"`
	// Reason is why nothing, or nothing else, is offered; empty if nothing is missing.
	Reason  string         `json:"reason"`
	Matches []MatchOutcome `json:"matches"`
}

// MatchOutcome is what a match selects.
type MatchOutcome struct {
	Place      string      `json:"place"`
	Selected   []string    `json:"selected"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one condition of a match: how many of the devices it fits that those
// before it leave, without the ones that fit nothing.
type Condition struct {
	Key  string `json:"key"`  // "glob", "usb.id"
	Want string `json:"want"` // patterns
	Fits int    `json:"fits"`
	// Nearest is what comes nearest where nothing fits: a value and where it is.
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
func Explain(cfg *config.Config, snap *device.Snapshot, forms device.Forms, opts Options, h *device.Hardware, n *device.Node) []Explanation {
	m := newRun(snap, forms, opts)
	inactive := m.matchAll(cfg)
	var all []Explanation
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		e := Explanation{Resource: r.Name, Offered: []string{}, Matches: []MatchOutcome{}}
		if note, ok := inactive[r]; ok {
			e.Reason = note.Text
		} else {
			m.explain(r, &e, h, n)
		}
		all = append(all, e)
	}
	return all
}

// subject is what a match selects: a node with its hardware, or hardware as a whole.
type subject struct {
	hardware *device.Hardware
	node     *device.Node
}

func (s subject) String() string {
	if s.node != nil {
		return s.node.Path
	}
	return s.hardware.Name
}

// subjects are what a match chooses from.
func (m *run) subjects(match *config.Match, h *device.Hardware, n *device.Node) []subject {
	var all []subject
	whole := match.NamesHardware() && match.Glob.Empty() && (match.Net == nil || match.VFIO)
	for _, o := range m.snap.Hardware {
		if whole && !o.IsRootHub() && (h == nil && n == nil || o == h) {
			all = append(all, subject{o, nil})
		}
	}
	for _, o := range slices.Concat(m.snap.Nodes, m.snap.Nets) {
		if !whole && (n == nil || o == n) && (h == nil || o.Hardware == h) && (o.Net == nil || match.Net != nil) {
			all = append(all, subject{o.Hardware, o})
		}
	}
	return all
}

// selects reports whether a match selects a subject.
func (p *predicate) selects(s subject) bool {
	if s.node != nil {
		return p.matches(s.node)
	}
	return (!p.VFIO || vfioGroup(s.hardware) != "") && p.matchesHardware(s.hardware) &&
		(p.matchesWithoutNode(s.hardware) || slices.ContainsFunc(s.hardware.Nodes, p.matchesNode))
}

// parts are the conditions of a match, each as a match of its own. Empty tables stay,
// since they say what a match is about.
func parts(match *config.Match) (keys []string, values []pattern.Values, each []config.Match) {
	bare := config.Match{Place: match.Place}
	table := func(of map[string]pattern.Values) map[string]pattern.Values {
		if of == nil {
			return nil
		}
		return map[string]pattern.Values{}
	}
	add := func(key string, v pattern.Values, set func(*config.Match)) {
		one := bare
		one.USB, one.PCI, one.Net, one.MDev = table(match.USB), table(match.PCI), table(match.Net), table(match.MDev)
		set(&one)
		keys, values, each = append(keys, key), append(values, v), append(each, one)
	}
	if !match.Glob.Empty() {
		add("glob", match.Glob, func(one *config.Match) {
			one.USB, one.PCI, one.Net, one.MDev, one.Glob = nil, nil, nil, nil, match.Glob
		})
	}
	for _, t := range []struct {
		name string
		of   map[string]pattern.Values
		into func(*config.Match) map[string]pattern.Values
	}{
		{"usb", match.USB, func(m *config.Match) map[string]pattern.Values { return m.USB }},
		{"pci", match.PCI, func(m *config.Match) map[string]pattern.Values { return m.PCI }},
		{"mdev", match.MDev, func(m *config.Match) map[string]pattern.Values { return m.MDev }},
		{"net", match.Net, func(m *config.Match) map[string]pattern.Values { return m.Net }},
	} {
		if t.of != nil && len(t.of) == 0 {
			add(t.name, pattern.Values{}, func(*config.Match) {})
		}
		for _, a := range device.Attributes() {
			if v := t.of[a.Key]; a.Table == t.name && !v.Empty() {
				add(a.Name(), v, func(one *config.Match) { t.into(one)[a.Key] = v })
			}
		}
	}
	if match.VFIO {
		add("vfio", pattern.Values{}, func(one *config.Match) { one.VFIO = true })
	}
	if !match.Subsystem.Empty() {
		add("subsystem", match.Subsystem, func(one *config.Match) { one.Subsystem = match.Subsystem })
	}
	// Those that read sysfs come last: only what fits otherwise is asked.
	if !match.Driver.Empty() {
		add("driver", match.Driver, func(one *config.Match) { one.Driver = match.Driver })
	}
	for _, name := range slices.Sorted(maps.Keys(match.Attr)) {
		add("attr."+name, match.Attr[name], func(one *config.Match) {
			one.Attr = map[string]pattern.Values{name: match.Attr[name]}
		})
	}
	return keys, values, each
}

// outcome applies the conditions of a match one after the other. One that fits nothing
// is left out for the rest, so that each has its own reason.
func (m *run) outcome(r *config.Resource, match *config.Match, h *device.Hardware, n *device.Node) (out MatchOutcome, failed int) {
	out = MatchOutcome{Place: match.Place[strings.LastIndex(match.Place, ": ")+2:], Selected: []string{}, Conditions: []Condition{}}
	if key, v := whole(match); key != "" {
		if h == nil && n == nil {
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
	keys, values, each := parts(match)
	all := m.subjects(match, h, n)
	one := h != nil || n != nil
	rest, narrowed := all, one
	fits := make([][]subject, len(each))
	for i, p := range m.predicates(each) {
		for _, s := range rest {
			if p.selects(s) {
				fits[i] = append(fits[i], s)
			}
		}
		if len(fits[i]) == 0 {
			failed++
			continue
		}
		narrowed = true
		rest = fits[i]
	}
	for i, p := range m.predicates(each) {
		c := Condition{Key: keys[i], Want: wanted(values[i]), Fits: len(fits[i])}
		if len(fits[i]) == 0 {
			c.Nearest = m.nearest(p, keys[i], values[i], all, rest, one, narrowed)
		}
		out.Conditions = append(out.Conditions, c)
	}
	if failed > 0 {
		return out, failed
	}
	p := m.predicates([]config.Match{*match})[0]
	for _, s := range rest {
		if p.selects(s) {
			out.Selected = append(out.Selected, s.String())
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

// nearest is what comes nearest to a condition: among the rest, which fits all others;
// else something that fits it and not the others. one: a single device is explained.
// narrowed: the rest fits some condition, so that even what is far off is of interest.
func (m *run) nearest(p *predicate, key string, want pattern.Values, all, rest []subject, one, narrowed bool) string {
	if !p.readsSysfs() {
		for _, s := range all {
			if p.selects(s) && (s.node == nil || !strings.HasPrefix(s.node.Path, "/dev/bus/")) {
				return fmt.Sprintf("it fits %s, which another condition leaves out", s)
			}
		}
	}
	best, found := 0, ""
	for _, s := range rest {
		have := m.value(key, s)
		if have == "" || p.readsSysfs() && !narrowed {
			continue
		}
		edits, but := 1<<10, ""
		for _, a := range want.Alternatives() {
			edits = min(edits, pattern.Distance(have, a.Shape()))
		}
		if len(want.Alternatives()) > 0 && (want.Match(strings.ToLower(have)) || want.Match(strings.ToUpper(have))) {
			edits, but = 0, ", which differs in letter case"
		}
		if !narrowed && edits > max(1, len(have)/4) || found != "" && edits >= best {
			continue
		}
		best, found = edits, have+but
		switch {
		case one:
			found = "it has " + found
		case s.String() == have:
			found = "nearest " + found
		default:
			found = "nearest " + have + " on " + s.String() + but
		}
	}
	return found
}

// value is the value of a subject for a condition.
func (m *run) value(key string, s subject) string {
	dirs := []string{hardwarePath(s.hardware)}
	if s.node != nil {
		dirs = sysDirs(s.node)
	}
	if name, ok := strings.CutPrefix(key, "attr."); ok {
		return cmp.Or(m.attr(dirs, name)...)
	}
	switch key {
	case "glob":
		return s.node.Path
	case "subsystem":
		if s.node != nil {
			return s.node.Subsystem
		}
	case "driver":
		return m.driver(dirs)
	case "vfio":
		if s.hardware != nil && s.hardware.PCI != nil {
			return "driver " + s.hardware.PCI.Driver
		}
	case "pci.pf":
		if f := s.hardware.Function(); f != nil {
			return strings.Join(m.physical(f), ",")
		}
	default:
		if a, ok := device.FindAttribute(key); ok {
			return strings.Join(a.Of(s.hardware, s.node), ",")
		}
	}
	return ""
}

// concerns reports whether a candidate has the hardware or node that is explained.
func (c *candidate) concerns(h *device.Hardware, n *device.Node) bool {
	switch {
	case n != nil:
		return slices.ContainsFunc(c.picks, func(p pick) bool { return p.node == n }) || c.node() == nil && n.Hardware != nil && slices.Contains(c.members(), n.Hardware)
	case h != nil:
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
func (m *run) explain(r *config.Resource, e *Explanation, h *device.Hardware, n *device.Node) {
	least := 1 << 10
	for i := range r.Match {
		out, failed := m.outcome(r, &r.Match[i], h, n)
		e.Matches = append(e.Matches, out)
		if failed > 0 && failed < least {
			least, e.Reason = failed, ""
			for _, c := range out.Conditions {
				if c.Fits == 0 {
					e.Reason = strings.TrimPrefix(e.Reason+"; "+c.String(), "; ")
				}
			}
			if len(r.Match) > 1 {
				e.Reason = out.Place + ": " + e.Reason
			}
		} else if failed == 0 {
			least = 0
		}
	}
	concerned := func(r *config.Resource) []candidate {
		return slices.DeleteFunc(slices.Clone(m.candidates(r)), func(c candidate) bool { return !c.concerns(h, n) })
	}
	found := concerned(r)
	var taken []string
	var owner *config.Resource
	for i := range found {
		if by := m.claims.owner(r, &found[i]); by != nil {
			owner, taken = by, append(taken, found[i].describe())
		}
	}
	for _, o := range m.result.Resources {
		for _, offer := range o.Offers {
			if o.Resource == r && (h == nil && n == nil || slices.ContainsFunc(found, func(c candidate) bool { return offers(offer, &c) })) {
				e.Offered = append(e.Offered, offer.ID)
			}
		}
	}
	switch {
	case len(taken) > 0:
		e.Reason = owner.Name + " has " + andMore(taken[0], len(taken))
	case len(e.Offered) > 0:
		e.Reason = ""
	case len(found) > 0:
		e.Reason = "left out: see generic-dp check"
	case least == 0:
		without := *r
		without.Exclude = nil
		if left := concerned(&without); len(left) > 0 {
			e.Reason = "exclude leaves out " + andMore(left[0].describe(), len(left))
		} else {
			e.Reason = "a match with required = true selects no node of it"
		}
	case e.Reason == "":
		e.Reason = "nothing matches"
	}
}

// offers reports whether an offer has something of a candidate.
func offers(o device.Offer, c *candidate) bool {
	return c.hardware != nil && o.Hardware == c.hardware.Path || slices.ContainsFunc(o.Nodes, func(n device.OfferedNode) bool {
		return !n.Companion && slices.ContainsFunc(c.picks, func(p pick) bool { return p.node.Path == n.HostPath })
	})
}

// Variable is a variable with its values for a device.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Variables lists the variables of hardware, or of a node of it, that have a value
// whatever the resource.
func Variables(snap *device.Snapshot, forms device.Forms, opts Options, h *device.Hardware, n *device.Node) []Variable {
	m := newRun(snap, forms, opts)
	c := &candidate{hardware: h}
	if n != nil {
		c.picks, c.single = []pick{{node: n, match: &config.Match{}, hardware: h}}, h == nil
	} else {
		for _, n := range h.Nodes {
			c.picks = append(c.picks, pick{node: n, match: &config.Match{}, hardware: h})
		}
	}
	b := m.builder(&config.Resource{NUMA: config.NUMA{Auto: true}}, c, "")
	names := []string{"id", "devnode", "kernel", "numa", "node_name"}
	for _, a := range device.Attributes() {
		names = append(names, a.Name())
	}
	var all []Variable
	for _, name := range names {
		if value, err := b.joined(device.Text{{Var: name}}, " "); err == nil {
			all = append(all, Variable{"${" + name + "}", value.String()})
		}
	}
	return all
}
