package agent

import (
	"github.com/generic-dp/generic-dp/cdi"
)

// withAmounts returns devices for a container that gets amounts of their shared capacities, by the
// ID of the device. Their responses are not kept, because each claim has its own amounts.
func withAmounts(devices []*cdi.Injection, amounts map[string]map[string]string) []*cdi.Injection {
	out := make([]*cdi.Injection, len(devices))
	for i, d := range devices {
		out[i] = d
		gets := amounts[d.Offer.ID]
		if gets != nil && len(d.Offer.Capacity) > 0 {
			// The published state is immutable, so the amounts go into a copy of the offer.
			offer := *d.Offer
			offer.Amounts = gets
			out[i] = &cdi.Injection{Offer: &offer}
		}
	}
	return out
}
