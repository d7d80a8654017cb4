package matchers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

// A resource whose devices and slots take too much memory is served in part, and the
// others wholly.
func TestMemory(t *testing.T) {
	t.Parallel()
	virtual := func(prefix string, n int) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("%q", fmt.Sprint(prefix, i)))
		}
		return "match.virtual = [" + strings.Join(names, ",") + "]\nwhen.node_name = \"*\"\n"
	}
	var many strings.Builder
	for i := range 998 {
		fmt.Fprintf(&many, "[[resource]]\nname = \"r%d\"\n%s", i, virtual(fmt.Sprint("r", i, "-"), 1))
	}
	for _, tc := range []struct {
		name, toml string
		offers     int // of the first resource
		slots      int // of all, at most
		last       bool
		note       string
	}{
		{name: "slots", toml: "count = 10000\n" + virtual("a", 66), offers: 1, slots: 12_000, last: true,
			note: `left out: virtual device "a1" and 64 more of 66 devices, each of which counts as 10003 slots with count = 10000, and there is room for 1377: half of what earlier resources leave of 23000`},
		{name: "several", toml: "count = 5500\n" + virtual("a", 10) + "[[resource]]\nname = \"two\"\ncount = 5500\n" + virtual("b", 10), offers: 2, slots: 17_000, last: true},
		{name: "devices", toml: virtual("a", 9000), offers: 2845, slots: 2900, last: true},
		{name: "texts", toml: virtual("a", 5000) + `container.env.X = "` + strings.Repeat("x", 60_000) + `${virtual}"` + "\n", offers: 55, slots: 57, last: true},
		{name: "one resource", toml: "count = 10000\n" + virtual("a", 1), offers: 1, slots: 10_001, last: true},
		{name: "resources", toml: virtual("a", 1) + many.String(), offers: 1, slots: 200,
			note: `left out: resource example.com/r997 counts as 120 slots with count = 1, and there is room for 92: half of what earlier resources leave of 23000`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			result := matchers.Match(parse(t, "[[resource]]\nname = \"first\"\n"+tc.toml+"[[resource]]\nname = \"last\"\n"+virtual("last", 1)), &device.Snapshot{}, nil, matchers.Options{Host: &fakeHost{}, NodeName: "n"})
			slots, last := 0, false
			for _, r := range result.Resources {
				last = last || r.Name == "example.com/last"
				for _, o := range r.Offers {
					slots += o.Slots
				}
			}
			if n := len(result.Resources[0].Offers); n > tc.offers || n < tc.offers*9/10 {
				t.Errorf("%d devices of the first, want %d", n, tc.offers)
			}
			if slots > tc.slots || last != tc.last {
				t.Errorf("%d slots, want at most %d; the last resource is served: %t", slots, tc.slots, last)
			}
			noted := tc.note == ""
			for _, n := range result.Notes {
				noted = noted || n.Error && n.Text == tc.note
			}
			if !noted {
				t.Errorf("notes: %.1000s", sayNotes(result.Notes))
			}
		})
	}
}
