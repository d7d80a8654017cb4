package holds

import (
	"context"
	"time"
)

// Look is one round of Run.
func (b *Book) Look(ctx context.Context) time.Time { return b.look(ctx) }

// ReadCheckpoint is what Run does when the checkpoint was replaced.
func (b *Book) ReadCheckpoint(ctx context.Context) { b.follow(ctx) }

// NotOffered is what a held device uses that is not offered now.
func (d Device) NotOffered(plugged map[string][]string) Device { return d.notOffered(plugged) }

// Holders are who holds slot 0 of a device: the UIDs of pods and claims, and "grant".
func (b *Book) Holders(id string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireGrants()
	var all []string
	for _, p := range b.pods[id] {
		all = append(all, p.Pod)
	}
	if b.grants[id].resource != "" {
		all = append(all, "grant")
	}
	for _, h := range b.holders() {
		if h.ID == id && h.Claim != "" {
			all = append(all, h.Claim)
		}
	}
	return all
}

// MaxHolds and MaxHoldsPerSlot limit the memory.
const (
	MaxHolds        = maxHolds
	MaxHoldsPerSlot = maxHoldsPerSlot
)
