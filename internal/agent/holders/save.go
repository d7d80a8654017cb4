package holders

import (
	"maps"
	"slices"

	"github.com/generic-dp/generic-dp/internal/ledger"
)

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
