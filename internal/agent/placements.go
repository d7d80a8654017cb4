package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/order"
)

// placements are the placements that claims have of devices. Each is another entry in the CDI spec of
// the resource, so that it follows the device like the entry of the device itself. They are kept in the
// files of the prepared claims; here are also the ones of claims that are being prepared.
type placements struct {
	now func() time.Time

	mu sync.Mutex
	// byID has the time of the last request for each placement of a device.
	byID map[string]map[device.Placement]time.Time
	// isRead is set once the files of claims were read.
	isRead bool
}

// placementFor is how long a placement stays that no prepared claim has. It is longer than a prepare
// waits.
const placementFor = 2 * time.Minute

// request adds a placement for a claim that is being prepared.
func (p *placements) request(id string, placement device.Placement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(id, placement)
}

// add adds a placement, or renews it. The caller holds p.mu.
func (p *placements) add(id string, placement device.Placement) {
	if p.byID == nil {
		p.byID = map[string]map[device.Placement]time.Time{}
	}
	if p.byID[id] == nil {
		p.byID[id] = map[device.Placement]time.Time{}
	}
	p.byID[id][placement] = p.now()
}

// refresh reads the placements of prepared claims, and drops the placements that no claim has had for a
// while. A node without placements reads the files only once.
func (p *placements) refresh(specs *cdi.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isRead && len(p.byID) == 0 {
		return
	}
	claims, err := specs.Claims()
	p.isRead = err == nil
	for _, c := range claims {
		for _, r := range c.Requests {
			if r.Placement == (device.Placement{}) {
				continue
			}
			for _, key := range slices.Concat(r.Devices, r.Admin) {
				_, id, _ := strings.Cut(key, "=")
				p.add(id, r.Placement)
			}
		}
	}
	// The placements of a file that can't be read are not known.
	if err != nil {
		return
	}
	oldest := p.now().Add(-placementFor)
	for id, all := range p.byID {
		maps.DeleteFunc(all, func(_ device.Placement, requested time.Time) bool {
			return requested.Before(oldest)
		})
		if len(all) == 0 {
			delete(p.byID, id)
		}
	}
}

// of returns the placements of a device, in an order that does not change.
func (p *placements) of(id string) []device.Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Collect(maps.Keys(p.byID[id]))
	order.Sort(all, func(a, b device.Placement) int {
		return strings.Compare(a.Path+" "+a.Permissions, b.Path+" "+b.Permissions)
	})
	return all
}

// placedOffers returns the offers with another offer for each of their placements. A placement that is
// not possible any more has no offer, so that its container does not start.
func (o *outputs) placedOffers(offers []device.Offer) []device.Offer {
	all := slices.Clone(offers)
	for _, offer := range offers {
		for _, placement := range o.placements.of(offer.ID) {
			placed, err := offer.Placed(placement)
			if err != nil {
				o.options.Log.Debug("the parameters of a claim are not possible", "device", offer.ID, "err", err)
				continue
			}
			all = append(all, placed)
		}
	}
	return all
}

// share is what one container gets of a device. The zero value is everything, as configured.
type share struct {
	// amounts are of the shared capacities.
	amounts   map[string]string
	placement device.Placement
}

// withShares returns devices as the containers of a claim get them, by the ID of the device. Their
// responses are not kept, because each claim has its own.
func withShares(devices []*cdi.Injection, shares map[string]share) ([]*cdi.Injection, error) {
	out := make([]*cdi.Injection, len(devices))
	for i, d := range devices {
		out[i] = d
		gets := shares[d.Offer.ID]
		hasAmounts := gets.amounts != nil && len(d.Offer.Capacity) > 0
		isPlaced := gets.placement != (device.Placement{})
		if !hasAmounts && !isPlaced {
			continue
		}
		// The published state is immutable, so the share goes into a copy of the offer.
		offer := *d.Offer
		if hasAmounts {
			offer.Amounts = gets.amounts
		}
		if isPlaced {
			var err error
			offer, err = offer.Placed(gets.placement)
			if err != nil {
				return nil, fmt.Errorf("device %q: parameters: %w", d.Offer.ID, err)
			}
		}
		out[i] = &cdi.Injection{Offer: &offer}
	}
	return out, nil
}

// place checks the placement of an offer for a claim, and has the loop write its CDI entry. names are the
// CDI names of the device. The error wraps dra.ErrNotOffered while there is no entry.
func (d *draDriver) place(m *resource, offer *device.Offer, names []string) error {
	placement := offer.Placement
	if placement == (device.Placement{}) {
		return nil
	}
	if err := placement.Check(offer); err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	// The values of such variables are known since the match.
	const containerPath = "container_path"
	for _, e := range m.now.Load().config.Container.Env {
		if placement.Path != "" && e.Value.Has(containerPath) {
			return fmt.Errorf("parameters: path %q: container.env.%s of the configuration contains ${%s}",
				placement.Path, e.Key.String(), containerPath)
		}
	}
	specs := d.agent.outputs.specs
	d.agent.outputs.placements.request(offer.ID, placement)
	if specs.Edits(names[0]) == nil {
		d.agent.wake.send()
		return fmt.Errorf("the CDI entry for the parameters of the claim is not written yet: %w", dra.ErrNotOffered)
	}
	return nil
}
