package matchers

import (
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// capacity returns the amounts of the device that its claims share. A device without a value, or
// with a value that contradicts the configured amounts, is not offered: claims that request the
// capacity could not be told how much they get.
func (b *builder) capacity() map[string]device.Capacity {
	if len(b.r.Capacity) == 0 {
		return nil
	}
	all := make(map[string]device.Capacity)
	for _, c := range b.r.Capacity {
		what := "capacity." + c.Name
		text, ok := b.text(what, c.Value, b.c)
		if !ok {
			continue
		}
		capacity, field, err := device.NewCapacity(text, c.Default)
		if err != nil {
			b.problem("%s.%s: %v", what, field, err)
			continue
		}
		all[c.Name] = capacity
	}
	return all
}

// versionNote names the version of Kubernetes that the resource needs, since older API servers drop
// fields that they do not know, without an error.
func (m *run) versionNote(r *config.Resource) {
	what, version, otherwise := r.NeedsVersion()
	if what != "" {
		m.note(r.Place, otherwise, "%s needs Kubernetes %s", what, version)
	}
}
