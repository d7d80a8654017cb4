package dra

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// Amounts are what one container gets of the capacities of shared devices: quantities by the name
// of the device and the name of the capacity.
type Amounts map[string]map[string]string

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
		whole, isConfigured := d.Capacity[name]
		if !isConfigured {
			continue // slots, or a capacity that was removed from the configuration
		}
		all = append(all, cdi.Share{
			Device:   d.key(),
			Capacity: name,
			Amount:   a.ConsumedCapacity[name],
			Of:       whole.Value,
		})
	}
	return all
}

// keepShares keeps what a claim was prepared with: somebody may have lowered a capacity since, and
// the containers of the claim must be able to restart. It changes Share.Of in the requests of the
// claim. The caller holds the lock of the claim.
func (p *Plugin) keepShares(claim cdi.Claim) {
	last, prepared := p.records.get(claim.UID)
	if !prepared {
		return
	}
	for _, r := range claim.Requests {
		for i := range r.Shares {
			share := &r.Shares[i]
			for _, before := range sharesOf(last.claim, deviceID(share.Device)) {
				if before.Capacity == share.Capacity && before.Amount == share.Amount {
					share.Of = before.Of
				}
			}
		}
	}
}

// sharesOf returns the shares that a claim has of a device, by its ID. All its requests count.
func sharesOf(claim cdi.Claim, id string) []cdi.Share {
	var all []cdi.Share
	for _, r := range claim.Requests {
		for _, s := range r.Shares {
			if deviceID(s.Device) == id {
				all = append(all, s)
			}
		}
	}
	return all
}

// exceeds reports whether a claim and other holders together need more of a capacity than a device
// has. A claim that is prepared already keeps what it has, see keepShares. The caller holds r.mu.
func (r *records) exceeds(claim cdi.Claim, name string, others []holder) bool {
	id := deviceID(name)
	shares := sharesOf(claim, id)
	if own := r.byUID[claim.UID]; own != nil && sameAmounts(sharesOf(own.claim, id), shares) {
		return false
	}
	all := slices.Clone(shares)
	for _, h := range others {
		all = append(all, sharesOf(h.claim, id)...)
	}
	// Only the capacities of this claim are compared: others may exceed theirs since before.
	for _, s := range shares {
		if !fits(s, all) {
			return true
		}
	}
	return false
}

// sameAmounts reports whether a claim has the same amounts as before.
func sameAmounts(a, b []cdi.Share) bool {
	return slices.EqualFunc(a, b, func(a, b cdi.Share) bool {
		return a.Capacity == b.Capacity && a.Amount == b.Amount
	})
}

// overcommitted returns what a claim needs of a device beyond the amount that the device has, or an
// empty string. Other claims do not matter here, see exceeds.
func overcommitted(claim cdi.Claim) string {
	for _, r := range claim.Requests {
		for _, s := range r.Shares {
			if !fits(s, sharesOf(claim, deviceID(s.Device))) {
				return fmt.Sprintf("more than %s of %s of device %q", s.Of, s.Capacity, s.Device)
			}
		}
	}
	return ""
}

// fits reports whether all shares of one capacity are at most the amount that the device has. An
// amount that cannot be read fits nowhere. all contains of.
func fits(of cdi.Share, all []cdi.Share) bool {
	sum := ""
	for _, s := range all {
		if s.Capacity != of.Capacity {
			continue
		}
		var err error
		sum, err = plus(sum, s.Amount)
		if err != nil {
			return false
		}
	}
	total, err := device.ParseQuantity(sum)
	if err != nil {
		return false
	}
	whole, err := device.ParseQuantity(of.Of)
	return err == nil && total.Cmp(whole) <= 0
}

// amountDomain is the domain of metadata attributes with the amounts that a request has. Device
// metadata has no field for them (DeviceMetadata in k8s.io/dynamic-resource-allocation).
const amountDomain = "capacity." + Driver + "/"

// describe returns the attributes of the device in the metadata of a request: the attributes in the
// slice, and the amount that the request has of each capacity.
func (d *Device) describe(r cdi.Request) map[string]attribute {
	all := d.attributes()
	for name, c := range d.Capacity {
		has := c.Value
		if d.Slots > 1 {
			has = amount(r, d.key(), name)
		}
		if has != "" {
			all[amountDomain+name] = amountAttribute(has)
		}
	}
	return all
}

// amountAttribute returns an amount as a number, or as a string if it is no integer.
func amountAttribute(text string) attribute {
	q, err := device.ParseQuantity(text)
	// An attribute has no type for fractions.
	if err == nil && q.IsInt64() {
		n := q.Int64()
		return attribute{Int: &n}
	}
	return attribute{String: &text}
}

// amount returns what a request has of a capacity of a device, which may be several shares. It is
// empty if the request has none. It is the first amount that cannot be added, if there is one.
func amount(r cdi.Request, key, capacity string) string {
	sum := ""
	for _, s := range r.Shares {
		if s.Device != key || s.Capacity != capacity {
			continue
		}
		next, err := plus(sum, s.Amount)
		if err != nil {
			return s.Amount
		}
		sum = next
	}
	return sum
}
