package agent

import (
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
)

// status is the state of one resource. now is its published state. held is nil if the holders are unknown.
func (r *resource) status(now *published, held kubelet.Holders) status.Resource {
	s := status.Resource{
		Name:    r.Name,
		API:     string(config.APIDevicePlugin),
		Retired: now.config == retired,
		Devices: now.devices(),
	}
	holders := held[r.Name]
	if r.plugin != nil || r.byDRA {
		registration := r.registration()
		s.Registered = registration.Registered
		s.Reason = registration.Reason
	}
	if r.byDRA {
		s.API = string(config.APIDRA)
		holders = r.agent.dra.holders(now.entries, held)
	}
	heldSlots := 0
	free := 0
	for _, l := range now.list {
		id, _ := device.SplitSlot(l.ID)
		i, _ := now.indexOf(id)
		d := &s.Devices[i]
		// A slot beyond the configured number is retiring even if its device is in order.
		isRetiring := d.Health == status.Retiring || l.Reason == ledger.ReasonSlotRetired
		switch {
		case l.Healthy:
			s.Slots.Healthy++
		case isRetiring:
			s.Slots.Retiring++
		default:
			s.Slots.Unhealthy++
		}
		containers := holders[l.ID]
		for _, c := range containers {
			d.Held = append(d.Held, status.Holder{
				ID:        l.ID,
				Namespace: c.Namespace,
				Pod:       c.Pod,
				Container: c.Container,
			})
		}
		if len(containers) > 0 {
			heldSlots++
		} else if l.Healthy {
			free++
		}
	}
	// Without an answer of the kubelet, 0 would be wrong.
	if held != nil {
		s.Slots.Held = &heldSlots
		s.Slots.Free = &free
	}
	return s
}

// devices are the listed devices, without their holders. They are in the order of the entries.
func (p *published) devices() []status.Device {
	isForgotten := map[string]bool{}
	for slot := range p.refused {
		id, _ := device.SplitSlot(slot)
		isForgotten[id] = true
	}
	all := []status.Device{}
	for _, e := range p.entries {
		d := status.NewDevice(e.Offer, e.Healthy, e.Reason)
		// A device that is absent loses free slots before it leaves the list.
		d.Slots = e.Listed
		d.Since = p.since[d.ID]
		// Nobody needs to repair such a device.
		isDeliberate := p.config == retired || e.Withheld || e.Reason == ledger.ReasonUnselected
		if !e.Healthy && isDeliberate {
			d.Health = status.Retiring
		}
		d.Help = sectionOf(e, d.Health, isForgotten[d.ID])
		all = append(all, d)
	}
	return all
}

// waitsFor is why the first of the matched devices is not listed yet. It is empty if there is no such device.
func (p *published) waitsFor() string {
	if len(p.waiting) == 0 {
		return ""
	}
	first := p.waiting[0]
	return first.ID + ": " + first.Reason
}

// sectionOf is the section of the documentation that explains why a device is not Healthy.
// isForgotten is set if a pod that the kubelet has forgotten uses the device. It is empty for a
// healthy device. The first section that applies is the cause of the others.
func sectionOf(e ledger.Entry, health string, isForgotten bool) status.Section {
	isIncomplete := e.Reason == ledger.ReasonSettling || e.Reason == ledger.ReasonUnread
	switch {
	case health == status.Healthy:
		return ""
	case health == status.Retiring:
		return status.SectionRetiring
	case !e.Present || isIncomplete:
		return status.SectionAbsent
	case e.Offer.Problem != "":
		return status.SectionInjection
	case isForgotten:
		return status.SectionForgottenPod
	}
	return status.SectionHealthCheck
}

// sinceOf says since when entries have their health and reason, by ID, given the state before. A device
// that is new in the list has its state since now.
func (p *published) sinceOf(entries []ledger.Entry, now time.Time) map[string]time.Time {
	all := make(map[string]time.Time, len(entries))
	for _, e := range entries {
		id := e.Offer.ID
		all[id] = now
		i, isListed := p.indexOf(id)
		if isListed && p.entries[i].Healthy == e.Healthy && p.entries[i].Reason == e.Reason {
			all[id] = p.since[id]
		}
	}
	return all
}
