package ledger

import "slices"

// Lists reports whether a slot is listed.
func (e Entry) Lists(slot int) bool {
	return slot < e.Listed || slices.Contains(e.Kept, slot)
}
