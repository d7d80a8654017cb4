package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Explanation says why a resource has its devices, or why it has none. The names of the JSON fields are
// an API.
type Explanation struct {
	// A name with variables is not filled in, since it may make several names.
	Resource string `json:"resource"` // as in the configuration
	// Offered are the IDs of its devices.
	Offered []string `json:"offered"`
	// Reason is why nothing, or nothing else, is offered. It is empty if nothing is missing.
	Reason string `json:"reason"`
	// Matches are in the order of the resource. They are empty for an inactive resource.
	Matches []MatchOutcome `json:"matches"`
	// Variables of the resource, with their values for the explained device.
	Variables []Variable `json:"variables,omitempty"`
}

// MatchOutcome is the result of a match.
type MatchOutcome struct {
	// Place is the place in the resource: "match 2".
	Place string `json:"place"`
	// Selected names what the match selects. Excludes and other resources may drop some of it.
	Selected []string `json:"selected"`
	// Conditions are never nil, so that the JSON value is a list.
	Conditions []Condition `json:"conditions"`
}

// Condition is one condition of a match. It is applied to the targets that the conditions before it have
// left. A condition that fits nothing does not affect the next conditions.
type Condition struct {
	Key  string `json:"key"`  // "glob", "usb.id"
	Want string `json:"want"` // patterns
	// Fits is the number of targets that are left after this condition.
	Fits int `json:"fits"`
	// Nearest is the nearest value and its location, if nothing fits.
	Nearest string `json:"nearest"`
}

// String describes a condition that fits nothing.
func (c Condition) String() string {
	text := strings.TrimSpace(c.Key+" "+c.Want) + " fits nothing"
	if c.Nearest != "" {
		text += ": " + c.Nearest
	}
	return text
}

// nameOf names a target in explanations: the hardware that a match selects with its nodes, or the node.
func (p *predicate) nameOf(t target) string {
	if p.isWhole() {
		return t.hardware.Name
	}
	return t.node.Path
}

// namesOf names targets, each once.
func (p *predicate) namesOf(targets []target) []string {
	names := []string{}
	for _, t := range targets {
		names = append(names, p.nameOf(t))
	}
	// Hardware is followed by its nodes.
	return slices.Compact(names)
}

// includes reports whether an explanation about t is also about another target.
func (t target) includes(other target) bool {
	if t.node != nil && other.node != nil {
		return other.node == t.node
	}
	// A match without a glob selects a node with its hardware.
	isOfNode := t.node == nil || t.hardware != nil
	// A subject without a node and hardware includes every target.
	return isOfNode && (t.hardware == nil || other.hardware == t.hardware)
}

// concerns reports whether a candidate has the explained hardware or node.
func (t target) concerns(c *candidate) bool {
	if t.node != nil {
		isPicked := slices.ContainsFunc(c.picks, func(p pick) bool {
			return p.node == t.node
		})
		// A device without picks stands for its hardware as a whole.
		isWhole := len(c.picks) == 0 && t.node.Hardware != nil
		return isPicked || isWhole && slices.Contains(c.members(), t.node.Hardware)
	}
	if t.hardware == nil {
		return true
	}
	// The owner of a node may be another function of the IOMMU group than the hardware of the
	// device.
	hasNode := slices.ContainsFunc(c.picks, func(p pick) bool {
		return p.node.Hardware == t.hardware
	})
	return hasNode || slices.Contains(c.members(), t.hardware)
}

// Explain explains each resource of a configuration on a host, as far as the hardware h or the node n is
// concerned. If both are nil, it explains the whole host.
func Explain(
	cfg *config.Config,
	snap *device.Snapshot,
	forms device.Forms,
	opts Options,
	h *device.Hardware,
	n *device.Node,
) []Explanation {
	m := newRun(cfg, snap, forms, opts)
	x := explainer{
		run:     newRun(cfg, snap, forms, opts),
		subject: target{h, n},
	}
	all := make([]Explanation, 0, len(cfg.Resources))
	m.matchAll(cfg, func(r *config.Resource, inactive string) {
		e := Explanation{
			Resource: r.Name,
			// Empty lists are not nil, so that their JSON values are lists.
			Offered: []string{},
			Reason:  inactive,
			Matches: []MatchOutcome{},
		}
		unknown := m.result.Unknown[r]
		if inactive == "" {
			x.explain(&e, r, m, unknown == "")
		}
		if unknown != "" {
			e.Reason = unknown
		}
		all = append(all, e)
	})
	return all
}

// explainer evaluates the conditions of a configuration one by one. It is a run of its own, so that its reads
// do not use up the time of the matched run.
type explainer struct {
	*run
	subject target
}

// explain fills in the explanation of a resource that is active and that m has just matched. If the search
// for its devices was cut off, isKnown is not set, and the counts of its conditions mean nothing.
func (x *explainer) explain(e *Explanation, r *config.Resource, m *run, isKnown bool) {
	x.deadline.begin()
	for _, o := range m.offered {
		if !x.subject.concerns(o.device) {
			continue
		}
		e.Offered = append(e.Offered, o.id)
		// The variables of every device of the host would be too many to read.
		if x.subject != (target{}) {
			// The first three are of interest even if the resource does not use them.
			names := append([]string{"id", "resource", "container_path"}, r.Variables...)
			e.Variables = append(e.Variables, x.offer(r, o.device, o.name).table(names)...)
		}
	}
	slices.Sort(e.Offered)
	if !isKnown {
		return
	}
	for i := range r.Match {
		e.Matches = append(e.Matches, x.outcome(x.predicate(&r.Match[i])))
	}
	e.Reason = x.reasons(m.left, len(e.Offered) > 0)
	if e.Reason == "" && len(e.Offered) == 0 {
		e.Reason = nearestMatch(e.Matches)
	}
}

// reasons says why devices are not offered. The devices that another resource has are a reason even if other
// devices are offered. An explanation is a few lines long, so that only the first of the other reasons is told.
func (x *explainer) reasons(left []leftOut, isOffered bool) string {
	// A reason is the text before and after the names of its devices.
	type reason struct{ before, after string }
	names := make(map[reason][]string)
	var reasons []reason
	for _, l := range left {
		isIgnored := isOffered && l.owner == nil
		if isIgnored || !x.subject.concerns(l.device) {
			continue
		}
		why := reason{"left out: ", ": " + l.why}
		if l.owner != nil {
			why = reason{l.owner.Name + " has ", ""}
		} else if l.why == excluded {
			why = reason{"exclude leaves out ", ""}
		}
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], l.device.describe())
	}
	var texts []string
	isTold := false
	others := 0
	for _, why := range reasons {
		// Several nodes of one device may be excluded, in any order.
		devices := names[why]
		slices.Sort(devices)
		devices = slices.Compact(devices)
		if why.after != "" && isTold {
			others += len(devices)
			continue
		}
		isTold = isTold || why.after != ""
		texts = append(texts, why.before+andMore(devices[0], len(devices))+why.after)
	}
	if others > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", others))
	}
	return strings.Join(texts, "; ")
}

// nearestMatch lists the conditions that fit nothing of the match with the fewest such conditions: the
// administrator almost got it right.
func nearestMatch(matches []MatchOutcome) string {
	var least []string
	text := "nothing matches"
	for _, m := range matches {
		unfit := m.unfit()
		if len(unfit) == 0 || least != nil && len(unfit) >= len(least) {
			continue
		}
		least = unfit
		text = strings.Join(unfit, "; ")
		if len(matches) > 1 {
			text = m.Place + ": " + text
		}
	}
	return text
}

// unfit lists the conditions that fit nothing, as reasons.
func (o MatchOutcome) unfit() []string {
	var unfit []string
	for _, c := range o.Conditions {
		if c.Fits == 0 {
			unfit = append(unfit, c.String())
		}
	}
	return unfit
}

// outcome applies the conditions of a match to its targets, one after the other. A condition that fits
// nothing is skipped for the others, so that each condition has its own reason.
func (x *explainer) outcome(p *predicate) MatchOutcome {
	out := MatchOutcome{
		Place:    placeInResource(p.Match),
		Selected: []string{},
	}
	if p.Mount || !p.CDIDevice.Empty() || len(p.Virtual) > 0 {
		x.withoutTargets(p, &out)
		return out
	}
	h := x.subject.hardware
	// The other conditions mean nothing for a sub-function.
	if h != nil && p.pci && p.ignores(h) {
		out.Conditions = []Condition{{
			Key:     "pci.sriov",
			Nearest: `only "sf" selects a sub-function`,
		}}
		return out
	}
	var rest []target
	out.Conditions, rest = x.narrow(p)
	// The rest is not selected if a condition fits nothing, which narrow skips.
	if len(out.unfit()) == 0 {
		out.Selected = p.namesOf(rest)
	}
	return out
}

// withoutTargets fills in the outcome of a match that selects neither nodes nor hardware.
func (x *explainer) withoutTargets(p *predicate, out *MatchOutcome) {
	key := "virtual"
	want := p.CDIDevice
	var selected []string
	switch {
	case p.Mount:
		key = "glob"
		want = p.Glob
		selected = x.mounts(p)
	case !want.Empty():
		key = "cdi_device"
		for _, d := range x.matchingCDIDevices(p) {
			selected = append(selected, cdiName(d))
		}
	}
	for i := range p.Virtual {
		selected = append(selected, virtualName(&p.Virtual[i]))
	}
	// They have no hardware, so that they are not about hardware or a node.
	if x.subject == (target{}) {
		out.Selected = append(out.Selected, selected...)
	}
	out.Conditions = []Condition{{
		Key:  key,
		Want: quotedPatterns(want),
		Fits: len(out.Selected),
	}}
}

// fitting lists the targets for which a condition holds.
func (p *predicate) fitting(c *condition, targets []target) []target {
	var fitting []target
	for _, t := range targets {
		if p.judge(c, t).holds {
			fitting = append(fitting, t)
		}
	}
	return fitting
}

// narrow counts the targets that fit the conditions of a match, one after the other, and returns the targets
// that are left. For a condition that fits nothing, it finds the nearest value.
func (x *explainer) narrow(p *predicate) ([]Condition, []target) {
	near := nearest{
		p: p,
		// A single target is as narrow as can be.
		isNarrowed: x.subject != (target{}),
	}
	p.targets(func(t target) {
		if x.subject.includes(t) {
			near.all = append(near.all, t)
		}
	})
	near.rest = near.all
	shown := make([]Condition, len(p.conditions))
	for i := range p.conditions {
		c := &p.conditions[i]
		fitting := p.fitting(c, near.rest)
		shown[i] = Condition{
			Key:  c.key,
			Want: quotedPatterns(c.want),
			Fits: len(p.namesOf(fitting)),
		}
		if len(fitting) > 0 {
			near.rest = fitting
			near.isNarrowed = true
		}
	}
	// The rest is complete only now: a later condition may have narrowed it.
	for i := range shown {
		if shown[i].Fits == 0 {
			shown[i].Nearest = near.to(&p.conditions[i])
		}
	}
	return shown, near.rest
}

// quotedPatterns formats patterns for people: `"a*" or "b"`. No value may match a pattern with "!":
// `"a*" or "b", and "!ab"`.
func quotedPatterns(v pattern.Values) string {
	var positive, negative []string
	for _, p := range v.Patterns() {
		quoted := fmt.Sprintf("%q", p)
		if strings.HasPrefix(p, "!") {
			negative = append(negative, quoted)
		} else {
			positive = append(positive, quoted)
		}
	}
	text := strings.Join(positive, " or ")
	if len(positive) > 0 && len(negative) > 0 {
		text += ", and "
	}
	return text + strings.Join(negative, " and ")
}
