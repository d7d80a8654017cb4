package holds_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// Whether a container may have a device while another one has device a of the resource part.
func TestBlocked(t *testing.T) {
	const other = "example.com/other"
	byClaim := device.ResourceKey(part, true)
	card := places("devices/card")
	function := places("devices/card/function")
	for name, test := range map[string]struct {
		held   holds.Device
		wanted holds.Wanted
		want   bool
	}{
		"another slot":                       {card, holds.Wanted{ID: "a", Resource: part, Device: card}, false},
		"the same ID by the other API":       {card, holds.Wanted{ID: "a", Resource: byClaim, Device: card}, true},
		"the same ID, both shared":           {shared(card), holds.Wanted{ID: "a", Resource: other, Device: shared(card)}, true},
		"another ID":                         {card, holds.Wanted{ID: "b", Resource: part, Device: card}, true},
		"another ID, both shared":            {shared(card), holds.Wanted{ID: "b", Resource: part, Device: shared(card)}, true},
		"the other API, both shared":         {shared(card), holds.Wanted{ID: "b", Resource: byClaim, Device: shared(card)}, true},
		"another resource":                   {card, holds.Wanted{ID: "b", Resource: other, Device: card}, true},
		"another resource, one is shared":    {card, holds.Wanted{ID: "b", Resource: other, Device: shared(card)}, true},
		"another resource, both shared":      {shared(card), holds.Wanted{ID: "b", Resource: other, Device: shared(card)}, false},
		"a part":                             {card, holds.Wanted{ID: "b", Resource: other, Device: function}, false},
		"a part of an exclusive one":         {exclusive(card), holds.Wanted{ID: "b", Resource: other, Device: function}, true},
		"an exclusive part":                  {card, holds.Wanted{ID: "b", Resource: other, Device: exclusive(function)}, true},
		"an exclusive whole":                 {function, holds.Wanted{ID: "b", Resource: other, Device: exclusive(card)}, true},
		"other hardware":                     {exclusive(card), holds.Wanted{ID: "b", Resource: other, Device: exclusive(places("devices/next"))}, false},
		"unknown hardware":                   {holds.Device{}, holds.Wanted{ID: "b", Resource: other, Device: card}, false},
		"unknown hardware, exclusive device": {holds.Device{}, holds.Wanted{ID: "b", Resource: other, Device: exclusive(card)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(h *host) {
				h.save(map[string][]string{podUID: {"a"}})
				b := h.start()
				if test.held.Places != nil {
					b.Observe(t.Context(), map[string]holds.Device{"a": test.held}, nil, nil, h.isOurs)
				}
				reason := b.View().Blocked(test.wanted)
				if (reason != "") != test.want {
					h.Errorf("blocked for %q, want it blocked: %t", reason, test.want)
				}
				if err := h.grant(b, test.wanted); (err != nil) != test.want {
					h.Errorf("Grant: %v, want an error: %t", err, test.want)
				}
			})
		})
	}
}

// One container does not get the same hardware twice, or devices that exclude each other.
func TestCheckWithin(t *testing.T) {
	t.Parallel()
	twice := wanted("b")
	twice.Places = wanted("a").Places
	whole := holds.Wanted{ID: "c", Resource: part, Device: exclusive(places("devices"))}
	for name, test := range map[string]struct {
		devices []holds.Wanted
		isFree  bool
	}{
		"two slots":            {[]holds.Wanted{wanted("a"), wanted("a")}, true},
		"two devices":          {[]holds.Wanted{wanted("a"), wanted("b")}, true},
		"the same hardware":    {[]holds.Wanted{wanted("a"), twice}, false},
		"a whole and its part": {[]holds.Wanted{wanted("a"), whole}, false},
	} {
		if err := holds.CheckWithin(test.devices); (err == nil) != test.isFree {
			t.Errorf("%s: %v, want no error: %t", name, err, test.isFree)
		}
	}
}
