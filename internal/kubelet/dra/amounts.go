package dra

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// Amounts are what one container gets of the capacities of shared devices: numbers by the name
// of the device and the name of the capacity.
type Amounts map[string]map[string]string

// part is what a claim has of a device: slots if capacity is empty, and otherwise an amount.
type part struct{ device, capacity string }

// parts are the sums of what somebody has. A claim may have several shares of one device.
type parts map[part]device.Quantity

// add adds an amount. It is an error if the API server has an amount that is not a quantity.
func (all parts) add(p part, text string) error {
	q, err := device.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q %w", text, err)
	}
	if sum, isThere := all[p]; isThere {
		q = sum.Plus(q)
	}
	all[p] = q
	return nil
}

// partsOf returns what a claim has, by the IDs of devices. The amounts were valid when the claim was filled.
func partsOf(claim cdi.Claim) parts {
	all := parts{}
	for _, r := range claim.Requests {
		for _, d := range r.Devices {
			_ = all.add(part{device: d.ID}, "1")
		}
		for _, s := range r.Shares {
			_ = all.add(part{s.Device.ID, s.Capacity}, s.Amount)
		}
	}
	return all
}

// amountsOf returns what a group of devices gets of capacities. Devices that are not shared are left out.
func amountsOf(group []allocated) (Amounts, error) {
	sums := parts{}
	amounts := Amounts{}
	for i := range group {
		a := &group[i]
		for name, text := range a.ConsumedCapacity {
			p := part{a.Device, name}
			if err := sums.add(p, text); err != nil {
				return nil, fmt.Errorf("request %s: consumedCapacity %s of device %q: %w", a.Request, name, a.Device, err)
			}
			if amounts[a.Device] == nil {
				amounts[a.Device] = map[string]string{}
			}
			amounts[a.Device][name] = sums[p].Number()
		}
	}
	return amounts, nil
}

// shares are the parts of the device that a result of an allocation has. They are sorted by
// capacity, so that the file of a claim does not change without need.
func (d *Device) shares(a *allocated) []cdi.Share {
	var all []cdi.Share
	for _, name := range slices.Sorted(maps.Keys(a.ConsumedCapacity)) {
		_, isConfigured := d.Capacity[name]
		if !isConfigured {
			continue // slots, or a capacity that was removed from the configuration
		}
		all = append(all, cdi.Share{
			Device:   d.ref(),
			Capacity: name,
			Amount:   a.ConsumedCapacity[name],
		})
	}
	return all
}

// whole returns what the device has in all: its slots if capacity is empty, and otherwise an amount.
func (d *Device) whole(capacity string) device.Quantity {
	text := d.Capacity[capacity].Value
	if capacity == "" {
		text = strconv.Itoa(d.Slots)
	}
	q, _ := device.ParseQuantity(cmp.Or(text, "0")) // the configuration has parsed it
	return q
}

// needsNoMore reports whether a claim has the same slots as before, and no larger amount.
func needsNoMore(next, last cdi.Claim) bool {
	had := partsOf(last)
	for p, needed := range partsOf(next) {
		before, hasSome := had[p]
		if !hasSome || needed.Cmp(before) > 0 {
			return false
		}
	}
	return len(next.Devices()) == len(last.Devices())
}

// checkAmounts returns why a claim needs more than a device has: alone, or with the other holders, which are
// in the error. Only the capacities of this claim are compared: others may exceed theirs since before. The book
// counts the slots of other holders. The caller holds c.mu.
func (c *claims) checkAmounts(f *filled) error {
	for p, needed := range partsOf(f.claim) {
		d := f.held[p.device]
		whole := d.whole(p.capacity)
		if needed.Cmp(whole) > 0 {
			return fmt.Errorf("the claim needs more than %s %s of device %q", whole, cmp.Or(p.capacity, slotsName), d.ref())
		}
		if p.capacity == "" {
			continue
		}
		held := &heldError{device: d.ref()}
		for uid, other := range c.byUID {
			share, hasShare := partsOf(other.Claim)[p]
			if uid != f.claim.UID && hasShare {
				held.holders = append(held.holders, other)
				needed = needed.Plus(share)
			}
		}
		if needed.Cmp(whole) > 0 {
			return held
		}
	}
	return nil
}
