package dra

import (
	"fmt"
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// Amounts are what one container gets of the capacities of shared devices: quantities by the name
// of the device and the name of the capacity.
type Amounts map[string]map[string]string

// amountsOf returns the sums of what devices of a claim get of capacities. A claim may have several
// shares of one device. Devices that are not shared are left out. The sums are by the name of the
// device and the name of the capacity. It is an error if the API server has an amount that is not a
// quantity.
func amountsOf(group []allocated) (Amounts, error) {
	all := Amounts{}
	for i := range group {
		a := &group[i]
		if a.ConsumedCapacity == nil {
			continue
		}
		sums := all[a.Device]
		if sums == nil {
			sums = map[string]string{}
			all[a.Device] = sums
		}
		for name, text := range a.ConsumedCapacity {
			sum, err := plus(sums[name], text)
			if err != nil {
				return nil, fmt.Errorf("request %s: consumedCapacity %s of device %q: %w", a.Request, name, a.Device, err)
			}
			sums[name] = sum
		}
	}
	return all, nil
}

// plus returns the sum of two quantities, of which the first may be empty.
func plus(sum, text string) (string, error) {
	q, err := device.ParseQuantity(text)
	if err != nil {
		return "", fmt.Errorf("%q %w", text, err)
	}
	if sum == "" {
		return text, nil
	}
	before, err := device.ParseQuantity(sum)
	if err != nil {
		return "", fmt.Errorf("%q %w", sum, err)
	}
	// Exact, because a sum is compared with the whole.
	return before.Plus(q).Number(), nil
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

// sharesOf returns the shares that a claim has of a device, by its ID. All its requests count.
func sharesOf(claim cdi.Claim, id string) []cdi.Share {
	var all []cdi.Share
	for _, r := range claim.Requests {
		for _, s := range r.Shares {
			if s.Device.ID == id {
				all = append(all, s)
			}
		}
	}
	return all
}

// overAmounts returns the other holders of a device that has less of a capacity than they and the claim
// need together, nil if there is no such device. The caller holds c.mu.
func (c *claims) overAmounts(f *filled) error {
	for _, ref := range f.claim.Devices() {
		held := &heldError{device: ref}
		shares := sharesOf(f.claim, ref.ID)
		all := slices.Clone(shares)
		for uid, other := range c.byUID {
			has := sharesOf(other.Claim, ref.ID)
			if uid != f.claim.UID && len(has) > 0 {
				held.holders = append(held.holders, other)
				all = append(all, has...)
			}
		}
		// Only the capacities of this claim are compared: others may exceed theirs since before.
		if f.held[ref].exceeded(shares, all) != "" {
			return held
		}
	}
	return nil
}

// exceeded returns a capacity of the device of which all shares together need more than the device has, one
// of which shares have a part. It is empty if all of them fit. An amount that cannot be read fits nowhere.
func (d *Device) exceeded(shares, all []cdi.Share) (capacity string) {
	for _, s := range shares {
		sum, err := total(all, s.Capacity)
		if err != nil {
			return s.Capacity
		}
		needed, err := device.ParseQuantity(sum)
		if err != nil {
			return s.Capacity
		}
		whole, err := device.ParseQuantity(d.Capacity[s.Capacity].Value)
		if err != nil || needed.Cmp(whole) > 0 {
			return s.Capacity
		}
	}
	return ""
}

// total returns the sum of what shares have of a capacity, empty if they have nothing of it.
func total(shares []cdi.Share, capacity string) (sum string, err error) {
	for _, s := range shares {
		if s.Capacity != capacity {
			continue
		}
		sum, err = plus(sum, s.Amount)
		if err != nil {
			return "", err
		}
	}
	return sum, nil
}
