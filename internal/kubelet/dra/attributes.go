package dra

import (
	"strconv"

	"github.com/generic-dp/generic-dp/internal/device"
)

// attributes are the attributes of a device for the API. The names resource, id and
// resource.kubernetes.io/numaNode of the other fields take precedence.
func (d *Device) attributes() map[string]attribute {
	all := map[string]attribute{}
	add := func(name string, v device.Typed) {
		if v.Text != "" {
			all[name] = attributeOf(v)
		}
	}
	for name, v := range d.Attributes {
		add(name, v)
	}
	add("resource", device.Typed{Text: d.Resource})
	add("id", device.Typed{Text: d.ID})
	// A device of several nodes has no single value that constraints could compare.
	if len(d.NUMA) == 1 {
		node := int64(d.NUMA[0])
		all[numaNode] = attribute{Int: &node}
	}
	return all
}

// attributeOf returns the attribute with a value. The API refuses a slice if any attribute is
// invalid: the parser of values accepts no text that does not become its type here.
func attributeOf(v device.Typed) attribute {
	switch v.Type {
	case device.IntType:
		// The text is known to be an integer, see above.
		n, _ := strconv.ParseInt(v.Text, 10, 64)
		return attribute{Int: &n}
	case device.BoolType:
		isTrue := v.Text == "true"
		return attribute{Bool: &isTrue}
	case device.VersionType:
		return attribute{Version: &v.Text}
	}
	text := device.AttributeValue(v.Text)
	return attribute{String: &text}
}

// slotsName is the capacity of which each claim gets 1. With it, the scheduler counts the slots of
// a device like any other amount.
const slotsName = "slots"

// capacity is the capacity of a device for the API, which allows a policy only for devices with
// multiple allocations.
func (d *Device) capacity() map[string]capacity {
	all := map[string]capacity{}
	for name, c := range d.Capacity {
		published := capacity{Value: c.Value}
		if d.Slots > 1 && c.Default != "" {
			published.RequestPolicy = &requestPolicy{Default: c.Default}
		}
		all[name] = published
	}
	if d.Slots > 1 {
		slots, _ := device.ParseQuantity(strconv.Itoa(d.Slots))
		all[slotsName] = capacity{
			Value:         slots.String(),
			RequestPolicy: &requestPolicy{Default: "1", ValidValues: []string{"1"}},
		}
	}
	if len(all) == 0 {
		return nil // as it is read
	}
	return all
}
