package holds

import (
	"context"
	"time"
)

// Look is one round of Run.
func (b *Book) Look(ctx context.Context) time.Time { return b.look(ctx) }

// ReadCheckpoint is what Run does when the checkpoint was replaced.
func (b *Book) ReadCheckpoint(ctx context.Context) { b.follow(ctx) }

// WriteJournal is a part of Look.
func (b *Book) WriteJournal() { b.writeJournal() }

// NotOffered is what a held device uses that is not offered now.
func (d Device) NotOffered(plugged map[string][]string) Device { return d.notOffered(plugged) }

// MaxHolds and MaxHoldsPerSlot limit the memory.
const (
	MaxHolds        = maxHolds
	MaxHoldsPerSlot = maxHoldsPerSlot
)
