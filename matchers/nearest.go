package matchers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// nearest explains the conditions of a match that fit nothing.
type nearest struct {
	p *predicate
	// all are the targets of the match.
	all []target
	// rest are the targets that fit the conditions so far, except for conditions that fit nothing.
	rest []target
	// isNarrowed is set if the rest fits some condition. Even a distant value is then of interest.
	isNarrowed bool
}

// to names a target that fits a condition but not the others. If there is none, it names the nearest value of
// the targets that fit the others. It is empty if no value is near enough to be of help.
func (n *nearest) to(c *condition) string {
	// The targets that the conditions left are few. Of all targets, no files are read.
	if c.isRead {
		// Without other conditions, nearly all hardware is a target, and a near value is a
		// coincidence.
		if !n.isNarrowed {
			return ""
		}
		return n.value(c)
	}
	for _, name := range n.p.namesOf(n.p.fitting(c, n.all)) {
		// Most matches leave the bus nodes of USB devices out on purpose.
		if !strings.HasPrefix(name, "/dev/bus/") {
			return fmt.Sprintf("it fits %s, which another condition leaves out", name)
		}
	}
	return n.value(c)
}

// value describes the nearest value of the rest, or a value that could not be read.
func (n *nearest) value(c *condition) string {
	// It is greater than any distance, so that the first value is nearer.
	const maxEdits = 1 << 10
	best := maxEdits
	found := ""
	unread := ""
	for _, t := range n.rest {
		name := n.p.nameOf(t)
		v := n.p.judge(c, t)
		if v.unread && unread == "" {
			unread = "the value for " + name + " can't be read yet"
		}
		for _, have := range v.values {
			edits, isFar, but := distance(c, have)
			isOther := isFar && !n.isNarrowed
			// The first of several equally near values is kept: the targets are in a fixed
			// order.
			if have == "" || isOther || edits >= best {
				continue
			}
			best = edits
			found = name + " has " + have + but
			if name == have {
				found = "nearest " + have + but // the path of the target itself
			}
		}
	}
	if found == "" {
		return unread
	}
	return found
}

// distance is the number of edits from a value to the patterns. It is 0 for differences that people
// overlook, and but then describes the difference. isFar is set if the value can hardly be meant.
func distance(c *condition, have string) (edits int, isFar bool, but string) {
	want := c.want
	matchesLower := want.Match(strings.ToLower(have))
	matchesUpper := want.Match(strings.ToUpper(have))
	isOtherCase := matchesLower || matchesUpper
	if isOtherCase && !want.Empty() && !want.Negative() {
		return 0, false, ", which differs in letter case"
	}
	if isSwapped(have, want) {
		return 0, false, ": is the pattern swapped?"
	}
	// The pattern is the value itself, but its wildcards do not match themselves.
	if slices.Contains(want.Patterns(), have) {
		return 0, false, ": with its wildcards escaped it is " + pattern.Quote(have)
	}
	// It is less than maxEdits, so that a value without any pattern to compare is still reported.
	edits = 1 << 9
	isFar = true
	for _, a := range want.Alternatives() {
		shape, isBeginning := strings.CutSuffix(a.Shape(), "*")
		compared := have
		if isBeginning {
			compared = have[:min(len(have), len(shape))]
		}
		edits = min(edits, pattern.Distance(compared, shape))
		// One edit in four characters may be a typing error. Much more is another value. The
		// directories of paths are too similar to count.
		isFar = isFar && edits > max(1, len(path.Base(compared))/4)
	}
	literal, _ := want.Literal()
	const shortest = 3
	// A shorter text is in many values by chance.
	if len(literal) >= shortest && strings.Contains(have, literal) {
		return min(edits, 1), false, ", which contains it: a pattern matches whole values"
	}
	return edits, isFar, ""
}

// isSwapped reports whether a pattern matches the halves of an ID in the wrong order: product:vendor.
func isSwapped(have string, want pattern.Values) bool {
	vendor, product, isID := strings.Cut(have, ":")
	return isID && !want.Empty() && vendor != product && want.Match(product+":"+vendor)
}
