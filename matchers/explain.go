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

// Explain explains each resource of a configuration on a host, as far as the hardware h or the node n is
// concerned. If both are nil, it explains the whole host. Explain runs Match with a recorder, and
// reports the records.
func Explain(
	cfg *config.Config,
	snap *device.Snapshot,
	forms device.Forms,
	opts Options,
	h *device.Hardware,
	n *device.Node,
) []Explanation {
	m := newRun(cfg, snap, forms, opts)
	m.recorder = newRecorder(cfg, target{h, n})
	inactive := m.matchAll(cfg)
	all := make([]Explanation, 0, len(cfg.Resources))
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		e := Explanation{
			Resource: r.Name,
			// Empty lists are not nil, so that their JSON values are lists.
			Offered: []string{},
			Matches: []MatchOutcome{},
		}
		note, isInactive := inactive[r]
		if isInactive {
			e.Reason = note.Text
		} else {
			m.recorder.traces[r].explain(&e)
		}
		unknown := m.result.Unknown[r]
		// The search was cut off, so that the counts of the conditions mean nothing.
		if unknown != "" {
			e.Reason = unknown
			e.Matches = []MatchOutcome{}
		}
		all = append(all, e)
	}
	return all
}

// explain fills in the explanation of a resource that is active.
func (t *trace) explain(e *Explanation) {
	e.Offered = append(e.Offered, t.offered...)
	slices.Sort(e.Offered)
	e.Variables = t.variables
	nearest := ""
	// least is 0 as long as no match has a condition that fits nothing.
	least := 0
	for _, m := range t.matches {
		out := m.outcome()
		e.Matches = append(e.Matches, out)
		unfit := out.unfit()
		// The match with the fewest such conditions is the one that the administrator almost got
		// right.
		if len(unfit) > 0 && (least == 0 || len(unfit) < least) {
			least = len(unfit)
			nearest = strings.Join(unfit, "; ")
			if len(t.matches) > 1 {
				nearest = out.Place + ": " + nearest
			}
		}
	}
	e.Reason = t.reason(nearest)
}

// reason says why something is missing. nearest is the reason of the match with the fewest
// conditions that fit nothing. It is empty if the resource offers devices and no other resource
// has some of them.
func (t *trace) reason(nearest string) string {
	// This is a reason even if the resource offers other devices.
	if len(t.owners) > 0 {
		return t.ownersReason()
	}
	if len(t.offered) > 0 {
		return ""
	}
	var reasons []string
	if t.found == 0 && len(t.excluded) > 0 {
		// The map has no order. The least name makes the text the same each time.
		first := slices.Min(slices.Collect(maps.Keys(t.excluded)))
		reasons = append(reasons, "exclude leaves out "+andMore(first, len(t.excluded)))
	}
	if t.droppedCount > 0 {
		reasons = append(reasons, t.droppedReason())
	}
	if len(reasons) > 0 {
		return strings.Join(reasons, "; ")
	}
	return cmp.Or(nearest, "nothing matches")
}

// ownersReason names the resources that have the devices.
func (t *trace) ownersReason() string {
	var reasons []string
	for _, o := range t.owners {
		reasons = append(reasons, o.owner.Name+" has "+andMore(o.first, o.count))
	}
	return strings.Join(reasons, "; ")
}

// droppedReason says why the first devices are dropped.
func (t *trace) droppedReason() string {
	d := t.dropped
	text := fmt.Sprintf("left out: %s: %s", andMore(d.first, d.count), d.why)
	others := t.droppedCount - d.count
	switch others {
	case 0:
		return text
	case 1:
		return text + "; and 1 more device"
	}
	return fmt.Sprintf("%s; and %d more devices", text, others)
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
func (t *matchTrace) outcome() MatchOutcome {
	out := MatchOutcome{
		Place:      placeInResource(t.predicate.Match),
		Selected:   []string{},
		Conditions: []Condition{},
	}
	key, want := onlyCondition(t.predicate.Match)
	if key != "" {
		out.Selected = append(out.Selected, t.selectedOthers...)
		out.Conditions = append(out.Conditions, Condition{
			Key:  key,
			Want: quotedPatterns(want),
			Fits: len(out.Selected),
		})
		return out
	}
	// Other conditions were not judged for ignored hardware.
	if t.ignoresAll() {
		out.Conditions = append(out.Conditions, Condition{
			Key:     "pci.sriov",
			Nearest: `only "sf" selects a sub-function`,
		})
		return out
	}
	steps := t.steps()
	t.narrow(steps)
	for _, s := range steps {
		out.Conditions = append(out.Conditions, s.Condition)
	}
	// Targets may be left, because narrow skips a condition that fits nothing. The match does not
	// select them.
	if len(out.unfit()) > 0 {
		return out
	}
	for _, selected := range t.selected {
		out.Selected = append(out.Selected, selected.String())
	}
	if len(out.Selected) == 0 {
		// Examples are the keys interface and interface_class that fit two interfaces.
		out.Conditions = append(out.Conditions, Condition{Key: "all together"})
	}
	return out
}

// narrow counts the targets that fit the steps, one after the other. For a step that fits nothing, it
// finds the nearest value.
func (t *matchTrace) narrow(steps []*step) {
	isOne := t.recorder.subject != (target{})
	// A single target is as narrow as can be.
	isNarrowed := isOne
	// rest are the targets that fit all steps so far, except for steps that fit nothing.
	rest := t.targets
	for _, s := range steps {
		var fitting []target
		for _, candidate := range rest {
			if s.holds(candidate) {
				fitting = append(fitting, candidate)
			}
		}
		s.Fits = len(fitting)
		if len(fitting) > 0 {
			rest = fitting
			isNarrowed = true
		}
	}
	for _, s := range steps {
		if s.Fits > 0 {
			continue
		}
		// rest is complete only now: a later step may have narrowed it.
		n := nearest{
			step:       s,
			all:        t.targets,
			rest:       rest,
			isOne:      isOne,
			isNarrowed: isNarrowed,
		}
		s.Nearest = n.String()
	}
}

// ignoresAll reports whether the match ignored everything as a sub-function.
func (t *matchTrace) ignoresAll() bool {
	for _, candidate := range t.targets {
		if !t.ignored[candidate.hardware] {
			return false
		}
	}
	return len(t.targets) > 0
}

// onlyCondition returns the condition of a match that selects neither nodes nor hardware. key is empty for
// other matches.
func onlyCondition(match *config.Match) (key string, want pattern.Values) {
	if match.Mount {
		return "glob", match.Glob
	}
	if !match.CDIDevice.Empty() {
		return "cdi_device", match.CDIDevice
	}
	if len(match.Virtual) > 0 {
		return "virtual", pattern.Values{}
	}
	return "", pattern.Values{}
}

// quotedPatterns formats patterns for people: `"a*" or "b"`.
func quotedPatterns(v pattern.Values) string {
	quoted := []string{}
	for _, p := range v.Patterns() {
		quoted = append(quoted, fmt.Sprintf("%q", p))
	}
	return strings.Join(quoted, " or ")
}
