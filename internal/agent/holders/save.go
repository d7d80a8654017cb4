package holders

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

// AddForgotten adds the slots of pods that run although the kubelet has forgotten them to the
// held slots, so that no other resource offers their devices. held has the slots that the kubelet
// lists.
//
// The checkpoint may still have such a pod: the kubelet writes it after a list of a device plugin
// without freeing the devices of the pods that it has forgotten (genericDeviceUpdateCallback,
// pkg/kubelet/cm/devicemanager/manager.go).
func (t *Tracker) AddForgotten(held *ledger.Held) {
	if t == nil {
		return
	}
	for slot, holds := range t.holdsBeside(held.IDs) {
		for _, h := range holds {
			if t.podState(h.podUID) == cgroup.Running {
				held.IDs[slot] = h.resource
			}
		}
	}
}

// holdsBeside returns a copy of the holds of all slots that are not in ids.
func (t *Tracker) holdsBeside(ids map[string]string) map[string][]hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	others := map[string][]hold{}
	for slot, holds := range t.holds {
		_, isHeld := ids[slot]
		if !isHeld {
			others[slot] = slices.Clone(holds)
		}
	}
	return others
}

// Save returns the holds for the next instance, sorted by slot.
func (t *Tracker) Save() []ledger.Hold {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []ledger.Hold
	for _, slot := range slices.Sorted(maps.Keys(t.holds)) {
		for _, h := range t.holds[slot] {
			all = append(all, ledger.Hold{
				Slot:     slot,
				Pod:      h.podUID,
				Resource: h.resource,
				Name:     h.staticName,
			})
		}
	}
	return all
}

// Restore adds the holds that an earlier instance saved. They must be of this boot, since no
// container survives a reboot.
func (t *Tracker) Restore(saved []ledger.Hold) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, past := range saved {
		holds := t.holds[past.Slot]
		isKnown := indexOfPod(holds, past.Pod) >= 0
		isFull := i >= maxHolds || len(holds) >= maxHoldsPerSlot
		if isKnown || isFull {
			continue
		}
		t.holds[past.Slot] = append(holds, hold{
			podUID:     past.Pod,
			resource:   past.Resource,
			staticName: past.Name,
		})
	}
	t.request()
}
