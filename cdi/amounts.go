package cdi

import (
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// withAmounts adds the variables of the capacities of a device: what its container gets.
func withAmounts(vars variables, o *device.Offer) variables {
	if len(o.Capacity) == 0 {
		return vars
	}
	return func(name string) (string, bool) {
		capacity, isCapacity := strings.CutPrefix(name, device.CapacityPrefix)
		if isCapacity {
			return amount(o, capacity)
		}
		return vars(name)
	}
}

// amount returns what the container of a device gets of a capacity, as a plain number. A claim that
// was allocated before the device had the capacity gets nothing.
func amount(o *device.Offer, capacity string) (number string, ok bool) {
	whole, isConfigured := o.Capacity[capacity]
	if !isConfigured {
		return "", false
	}
	text := whole.Value
	if o.Amounts != nil {
		text = o.Amounts[capacity]
	}
	if text == "" {
		return "0", true
	}
	q, err := device.ParseQuantity(text)
	if err != nil {
		return "", false
	}
	return q.Number(), true
}
