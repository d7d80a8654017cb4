package config

import (
	"fmt"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// attribute is a key of the tables usb, pci, net and mdev. Package device defines the keys, so that
// matches, variables and listings have the same names.
type attribute struct {
	device.Attribute
	kind kind
}

// attributes returns the attributes of hardware that a match can test, with the kinds of their values, in the order
// of the language.
var attributes = sync.OnceValue(func() []attribute {
	var all []attribute
	for _, a := range device.Attributes() {
		if !a.OnlyVariable {
			all = append(all, attribute{a, kindOf(a)})
		}
	}
	return all
})

// kindOf returns the kind of the values of an attribute. An unknown kind of value accepts any text.
func kindOf(a device.Attribute) kind {
	example := fmt.Sprintf("such as %q", a.Example)
	switch a.Kind {
	case device.PairValue:
		vendor, _, _ := strings.Cut(a.Example, ":")
		rule := "is not a " + strings.ToUpper(a.Table) + " ID"
		want := fmt.Sprintf("%s, four digits each, %s or %q", a.Help, example, vendor+":*")
		return hexadecimal(2, 4, rule, want, a.Name())
	case device.ByteValue:
		return hexadecimal(1, 2, "is not a hexadecimal number", "two digits "+example, "")
	case device.ClassValue:
		return pciClass
	case device.AddressValue:
		return address("a PCI address", "", a.Example)
	case device.SlotValue:
		// A slot is an address without the function. With a function it can be checked as an
		// address.
		return address("a PCI slot", ".0", a.Example)
	case device.NumberValue:
		return kind{
			mode: pattern.Number,
			// These values are decimal in sysfs and in TOML.
			integers: true,
			want:     `a number, or numbers and ranges such as "0,2-7"`,
		}
	case device.WordValue:
		return oneOf(a.Words)
	}
	return anyText
}

// hardware binds a key to a table of attributes of hardware.
// m.Hardware gets an entry even for an empty table, which selects all hardware of that kind.
func (t *table) hardware(name string, m *Match, example, help string) {
	read := func(v value) {
		if m.Hardware == nil {
			m.Hardware = make(map[string]map[string]pattern.Values)
		}
		// Match.NamesHardware must be right even if the value is no table, or each problem would cause
		// others.
		conditions := make(map[string]pattern.Values)
		m.Hardware[name] = conditions
		if v.isTable(example) {
			v.conditions(name, conditions)
		}
	}
	t.key(name, below(read), read, help)
}

// conditions reads v as a table of attributes of hardware.
func (v value) conditions(name string, conditions map[string]pattern.Values) {
	v.read(func(t *table) {
		for _, a := range attributes() {
			if a.Table != name {
				continue
			}
			read := func(v value) {
				conditions[a.Key] = v.values(a.kind)
			}
			t.key(a.Key, a.kind.form(), read, a.Help)
		}
	})
}
