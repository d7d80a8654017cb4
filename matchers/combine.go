package matchers

import (
	"errors"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

// combine makes devices of the claimed parts: one device of all with each = "all", and one of
// all hardware with the same value of a variable.
func (m *run) combine(r *config.Resource, parts []candidate) []candidate {
	if len(parts) == 0 {
		return nil
	}
	if r.Each == config.EachAll {
		pool := merge(parts)
		// A pool of one part is a pool, too: its ID stays the same when parts appear.
		pool.pool = true
		return []candidate{pool}
	}
	if r.GroupBy == "" {
		return parts
	}
	return m.group(r, parts)
}

// group makes one device of all parts with the same value of r.GroupBy. A part without a value
// stays a device of its own. A part whose value could not be read yet may belong to any group,
// and is left out.
func (m *run) group(r *config.Resource, parts []candidate) []candidate {
	var out []candidate
	groups := make(map[string][]candidate)
	for i := range parts {
		part := parts[i]
		value, unread := m.groupValue(r, &part)
		if unread {
			m.drop(&part, "the value of each can't be read yet")
			continue
		}
		if value == "" {
			out = append(out, part)
			continue
		}
		// The part keeps the value, so that messages name its group.
		part.value = value
		groups[value] = append(groups[value], part)
	}
	// The order is random here. The result is sorted below.
	for value, list := range groups {
		one := merge(list)
		one.value = value
		// The hardware places the group among the other devices. The parts are sorted by
		// hardware.
		one.hardware = list[0].hardware
		out = append(out, one)
	}
	slices.SortStableFunc(out, compareHardware)
	return out
}

// groupValue returns the value of the variable of each, empty if there is none. unread is set
// if it could not be read yet. A value that differs between the nodes of one hardware is the list
// of its values.
func (m *run) groupValue(r *config.Resource, c *candidate) (value string, unread bool) {
	if c.hardware == nil || r.GroupBy == "" {
		return "", false
	}
	text, err := m.builder(r, c, "").joined(device.Text{{Var: r.GroupBy}}, "")
	var none noValue
	isWithout := errors.As(err, &none)
	return text.String(), isWithout && none.unread
}

// merge makes one device of several parts. The caller sets pool or value, which distinguish a
// pool from a group.
func merge(parts []candidate) candidate {
	one := candidate{parts: parts}
	for _, p := range parts {
		one.united = append(one.united, p.members()...)
		one.vfio = one.vfio || p.vfio
		one.picks = append(one.picks, p.picks...)
	}
	one.united = sortHardware(one.united)
	order.Sort(one.picks, func(a, b pick) int {
		// Nodes come first: they keep their paths in the container if a mount has them, too.
		if a.match.Mount && !b.match.Mount {
			return 1
		}
		if b.match.Mount && !a.match.Mount {
			return -1
		}
		return strings.Compare(a.node.Path, b.node.Path)
	})
	return one
}
