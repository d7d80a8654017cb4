package agent

import (
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
)

// status is the state of one resource. now is its published state. Counts of which the kubelet
// knows nothing stay nil.
func (r *resource) status(now *published, known kubeletAnswer) status.Resource {
	s := status.Resource{
		Name:    r.Name,
		API:     string(config.APIDevicePlugin),
		Retired: now.config == retired,
		Devices: []status.Device{},
	}
	holders := known.held[r.Name]
	if r.plugin != nil || r.dra != nil {
		registration := r.registration()
		s.Registered = registration.Registered
		s.Reason = registration.Reason
	}
	if r.dra != nil {
		s.API = string(config.APIDRA)
		holders = r.dra.holders(now.entries, known.held)
		// The kubelet reports allocatable slots for device plugins only.
		known.allocatable = nil
	}
	// The pointers are taken after s.Devices is complete, because append may move its elements.
	s.Devices = append(s.Devices, now.devices()...)
	byID := map[string]*status.Device{}
	for i := range s.Devices {
		d := &s.Devices[i]
		byID[d.ID] = d
	}
	// A device that is absent loses free slots before it leaves the list.
	for i := range s.Devices {
		s.Devices[i].Slots = 0
	}
	held := 0
	free := 0
	for _, l := range now.list {
		id, _ := device.SplitSlot(l.ID)
		d := byID[id]
		d.Slots++
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
		d.Held = append(d.Held, holdersOf(l.ID, containers)...)
		if len(containers) > 0 {
			held++
		} else if l.Healthy {
			free++
		}
	}
	// Without an answer of the kubelet, 0 would be wrong.
	if known.held != nil {
		s.Slots.Held = &held
		s.Slots.Free = &free
	}
	if known.allocatable != nil {
		count := len(known.allocatable[r.Name])
		s.Slots.Allocatable = &count
	}
	return s
}

// holdersOf are the containers that hold a slot.
func holdersOf(slot string, containers []podresources.Holder) []status.Holder {
	var all []status.Holder
	for _, c := range containers {
		all = append(all, status.Holder{
			ID:        slot,
			Namespace: c.Namespace,
			Pod:       c.Pod,
			Container: c.Container,
		})
	}
	return all
}

// devices are the listed devices, without their holders. They are in the order of the entries.
func (p *published) devices() []status.Device {
	isForgotten := map[string]bool{}
	for slot := range p.refused {
		id, _ := device.SplitSlot(slot)
		isForgotten[id] = true
	}
	var all []status.Device
	for i, e := range p.entries {
		d := status.NewDevice(e.Offer, e.Healthy, e.Reason)
		d.Since = p.since[i]
		// Nobody needs to repair such a device.
		isDeliberate := p.config == retired || e.Withheld
		if !e.Healthy && isDeliberate {
			d.Health = status.Retiring
		}
		d.Help = sectionOf(e, d.Health, isForgotten[d.ID])
		all = append(all, d)
	}
	return all
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

// sinceOf says since when entries have their health and reason, given the state before. A device
// that is new in the list has its state since now.
func (p *published) sinceOf(entries []ledger.Entry, now time.Time) []time.Time {
	before := make(map[string]int, len(p.entries))
	for i, e := range p.entries {
		before[e.Offer.ID] = i
	}
	since := make([]time.Time, len(entries))
	for i, e := range entries {
		since[i] = now
		last, isKnown := before[e.Offer.ID]
		if !isKnown {
			continue
		}
		was := p.entries[last]
		if was.Healthy == e.Healthy && was.Reason == e.Reason {
			since[i] = p.since[last]
		}
	}
	return since
}
