package matchers

import (
	"fmt"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// maxTexts is the maximum length of all environment and annotations of a device.
const maxTexts = 1 << 20

var errTooLong = fmt.Errorf("longer than %d bytes in all: use shorter values", maxTexts)

// tooMuch notes that devices of a resource, or a whole resource, are left out, because they would take too
// much of the budget: a number of parts each. There is room for fewer.
func (m *run) tooMuch(r *config.Resource, what string, devices []*candidate, parts, room int) {
	m.result.LeftOut += len(devices)
	for _, c := range devices {
		m.drop(c, "it would take too much of the lists")
	}
	// A resource without devices has no slots yet. Its count is what it asks for.
	count := max(r.Count, 1)
	if len(devices) > 0 {
		count = devices[0].slots()
	}
	m.fault(r.Place, "a lower count, or less by match and exclude", "left out: %s counts as %d slots with count = %d, and there is room for %d: half of what earlier resources leave of %d",
		what, parts, count, room, device.MaxOffered)
}
