package matchers

import (
	"slices"
	"sort"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// firstAsks is how often all hardware of a bus is gone through for conditions
// on a key before it is put in order: that costs about as much.
const firstAsks = 4

// valueIndex is the hardware of a bus by what it has for one key.
type valueIndex struct {
	asks   int
	sorted []valued
}

// valued is hardware with the form of its value in the index.
type valued struct {
	value    string
	hardware *device.Hardware
}

// hardware lists what may fulfil the usb or pci table of m: all of the bus,
// or fewer where a condition says how the values begin that it wants, or the
// glob selects fewer nodes.
func (ix *index) hardware(m *config.Match) []*device.Hardware {
	bus, conditions, value := device.USBBus, m.USB, usbValue
	if m.USB == nil {
		bus, conditions, value = device.PCIBus, m.PCI, pciValue
	}
	least := len(ix.bus[bus])
	var best [][]valued
	for key, v := range conditions {
		wanted, ok := beginnings(key, v)
		if !ok {
			continue
		}
		n := 0
		found, ok := ix.values(bus, key, value).beginning(wanted)
		if !ok {
			continue
		}
		for _, values := range found {
			n += len(values)
		}
		if n < least {
			best, least = found, n
		}
	}
	if found, ok := ix.hardwareOfGlob(m.Glob, bus, least); ok {
		return found
	}
	if best == nil {
		return ix.bus[bus]
	}
	found := make([]*device.Hardware, 0, least)
	for _, values := range best {
		for _, v := range values {
			found = append(found, v.hardware)
		}
	}
	return found
}

// A name that a glob is asked about costs a fraction of hardware that a whole
// match is asked about.
const namesForHardware = 8

// hardwareOfGlob lists the hardware of a bus whose nodes a glob selects, if
// that is likely to be less work than to go through n devices.
func (ix *index) hardwareOfGlob(v config.Values, bus device.Bus, n int) (found []*device.Hardware, ok bool) {
	globs := v.Globs()
	if n <= 1 || len(globs) == 0 {
		return nil, false
	}
	asked := 0
	for _, g := range globs {
		names, all := ix.tree().asked(g)
		if all {
			names *= namesForHardware
		}
		if asked += names; asked >= n*namesForHardware {
			return nil, false
		}
	}
	seen := map[*device.Hardware]bool{}
	for _, node := range ix.glob(v) {
		if h := node.Hardware; h != nil && h.Bus == bus && !seen[h] {
			seen[h] = true
			found = append(found, h)
		}
	}
	return found, true
}

// values is the hardware of a bus by what it has for a key.
func (ix *index) values(bus device.Bus, key string, value func(*device.Hardware, string) string) *valueIndex {
	name := string(bus) + "." + key
	x := ix.byValue[name]
	if x == nil {
		x = &valueIndex{}
		ix.byValue[name] = x
	}
	if x.asks++; x.asks > firstAsks && x.sorted == nil {
		x.sorted = make([]valued, 0, len(ix.bus[bus]))
		for _, h := range ix.bus[bus] {
			x.sorted = append(x.sorted, valued{indexed(value(h, key)), h})
		}
		slices.SortFunc(x.sorted, func(a, b valued) int { return strings.Compare(a.value, b.value) })
	}
	return x
}

// beginning lists the hardware whose values begin like one of those wanted;
// false where it is not in order yet.
func (x *valueIndex) beginning(wanted []string) (found [][]valued, ok bool) {
	if x.sorted == nil {
		return nil, false
	}
	for _, w := range wanted {
		from := sort.Search(len(x.sorted), func(i int) bool { return x.sorted[i].value >= w })
		rest := x.sorted[from:]
		to := sort.Search(len(rest), func(i int) bool { return !strings.HasPrefix(rest[i].value, w) })
		found = append(found, rest[:to])
	}
	return found, true
}

// beginnings returns how the values begin that a condition on a key wants, in
// the form of the index, none of them the beginning of another; false where
// nothing is known of that. The index only has to find enough: conditions are
// tested on what it finds.
func beginnings(key string, v config.Values) (wanted []string, ok bool) {
	hexadecimal := false
	switch key {
	case "serial", "manufacturer", "product_name", "port", "path", "driver":
	case "id", "vendor", "product", "device", "subsystem_id", "class", "address", "slot":
		hexadecimal = true
	default:
		return nil, false // compared as numbers, or not worth it
	}
	for _, p := range v.Patterns() {
		if strings.HasPrefix(p, "!") {
			continue
		}
		p = indexed(p)
		if hexadecimal && strings.Contains(p, "0x") {
			return nil, false
		}
		if i := strings.IndexAny(p, `*?[{\`); i >= 0 {
			p = p[:i]
		}
		if p == "" {
			return nil, false
		}
		wanted = append(wanted, p)
	}
	slices.Sort(wanted)
	last := ""
	wanted = slices.DeleteFunc(wanted, func(w string) bool {
		if last != "" && strings.HasPrefix(w, last) {
			return true
		}
		last = w
		return false
	})
	return wanted, len(wanted) > 0
}

// indexed is the form of values in the index. Conditions may regard case; the
// index does not.
func indexed(value string) string { return strings.ToLower(strings.TrimSpace(value)) }
