package matchers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// combine makes devices of the parts that a resource got: one of all with
// each = "all", one of all hardware that has the same value with group_by.
func (b *builder) combine(parts []selected) []selected {
	switch {
	case len(parts) == 0:
		return nil
	case b.r.Each == config.EachAll:
		pool := merge(parts)
		pool.pool = true
		return []selected{pool}
	case b.r.GroupBy == "":
		return parts
	}
	var out []selected
	at := map[string]int{} // in groups
	var groups [][]selected
	for i := range parts {
		value := b.groupValue(&parts[i])
		if value == "" {
			out = append(out, parts[i])
			continue
		}
		parts[i].value = value
		n, ok := at[value]
		if !ok {
			n = len(groups)
			at[value] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], parts[i])
	}
	for _, g := range groups {
		one := merge(g)
		one.value = g[0].value
		one.hardware, one.rank = g[0].hardware, g[0].rank
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(x, y selected) int { return cmp.Compare(x.rank, y.rank) })
	return out
}

// groupValue is what hardware has for the variable of group_by, empty for none.
func (b *builder) groupValue(s *selected) string {
	if s.hardware == nil {
		return ""
	}
	c := &scope{b: b, s: s, numa: b.numa(s.members())}
	value, err := c.entry(device.Text{{Var: b.r.GroupBy}}, "")
	if err != nil {
		return ""
	}
	return value.String()
}

// merge is one device of several parts, with their nodes by path.
func merge(parts []selected) selected {
	var one selected
	for _, p := range parts {
		one.united = append(one.united, p.members()...)
		one.groups = append(one.groups, p.groups...)
		one.picks = append(one.picks, p.picks...)
		one.paths = append(one.paths, p.paths...)
		one.dangerous = one.dangerous || p.dangerous
	}
	slices.SortFunc(one.united, func(a, b *device.Hardware) int { return strings.Compare(a.Path, b.Path) })
	one.united = slices.Compact(one.united)
	slices.SortFunc(one.picks, func(a, b pick) int { return cmp.Compare(a.node.Path, b.node.Path) })
	slices.SortFunc(one.paths, func(a, b pathPick) int { return cmp.Compare(a.path, b.path) })
	return one
}
