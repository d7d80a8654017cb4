package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

// machine makes candidates of devices given as "name:slots@nodes", such as "a:2@0" or
// "b:1@0,1" or "c:1".
func machine(t testing.TB, devices ...string) []device.Listed {
	t.Helper()
	var all []device.Listed
	for _, d := range devices {
		name, rest, _ := strings.Cut(d, ":")
		count, nodes, _ := strings.Cut(rest, "@")
		var n int
		if _, err := fmt.Sscan(count, &n); err != nil {
			t.Fatal(err)
		}
		var numa []int
		for _, node := range strings.FieldsFunc(nodes, func(r rune) bool { return r == ',' }) {
			var k int
			if _, err := fmt.Sscan(node, &k); err != nil {
				t.Fatal(err)
			}
			numa = append(numa, k)
		}
		for k := range n {
			all = append(all, device.Listed{ID: device.SlotID(name, k), Device: "devices/" + name, NUMA: numa})
		}
	}
	return all
}

func words(s string) []string { return strings.Fields(s) }

func TestPrefer(t *testing.T) {
	t.Parallel()
	two := []string{"a:1@0", "b:1@0", "c:1@1", "d:1@1", "e:1@1"}
	shared := []string{"a:3", "b:3", "c:3"}
	tests := []struct {
		name, prefer string
		devices      []string
		used         string // slots that are not available
		must         string
		size         int
		want         string
	}{
		{"nothing asked", preferNUMA, two, "", "", 0, ""},
		{"more than there are", preferNUMA, two, "a b c", "", 9, "d e"},

		{"numa: one node where it has enough", preferNUMA, two, "", "", 3, "c d e"},
		{"numa: groups of hardware on one node before those across nodes", preferNUMA, []string{"a:1@0,1", "b:1@1", "c:1@1"}, "", "", 2, "b c"},
		{"numa: the smaller node where both have enough", preferNUMA, two, "", "", 2, "a b"},
		{"numa: the nodes with the most hardware", preferNUMA, []string{"a:1@0", "b:1@1", "c:1@1", "d:1@2", "e:1@2", "f:1@2"}, "", "", 4, "b d e f"},
		{"numa: the node of must", preferNUMA, two, "", "c", 2, "c d"},
		{"numa: the node of must first, though its hardware is in use", preferNUMA, []string{"a:2@0", "b:1@0", "c:1@1", "d:1@1"}, "a", "b", 3, "a::1 b c"},
		{"numa: hardware that is not in use", preferNUMA, []string{"a:2@0", "b:2@0", "c:2@0"}, "a", "", 1, "b"},
		{"numa: not a second slot, rather another node", preferNUMA, []string{"a:2@0", "b:2@1"}, "", "", 2, "a b"},
		{"numa: a second slot where there is nothing else", preferNUMA, []string{"a:2@0", "b:2@1"}, "", "", 3, "a a::1 b"},
		{"numa: hardware near to no node is near to all", preferNUMA, []string{"a:1@0", "b:1", "c:1@1", "d:1@1"}, "", "c", 3, "b c d"},
		{"numa: without nodes it spreads", preferNUMA, shared, "a", "", 2, "b c"},

		{"spread: hardware that is not in use", preferSpread, shared, "a b", "", 1, "c"},
		{"spread: the least used first", preferSpread, shared, "a a::1 b", "", 2, "b::1 c"},
		{"spread: second slots last", preferSpread, shared, "a", "", 5, "a::1 b b::1 c c::1"},
		{"spread: ignores nodes", preferSpread, two, "a", "", 2, "b c"},

		{"packed: hardware that is in use", preferPacked, shared, "b", "", 1, "b::1"},
		{"packed: the most used first", preferPacked, shared, "b c c::1", "", 2, "b::1 c::2"},
		{"packed: not two slots of one hardware", preferPacked, shared, "b", "", 2, "a b::1"},
		{"packed: two slots where there is nothing else", preferPacked, []string{"a:3"}, "a", "", 2, "a::1 a::2"},

		{"an unknown value is numa", "nearest", two, "", "", 3, "c d e"},
		{"must has more than was asked", preferSpread, two, "", "a c d", 2, "a c d"},
		{"must is not available any more", preferNUMA, two, "a", "a", 2, "a b"},
		{"must is not listed any more", preferSpread, two, "", "z", 2, "a b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := machine(t, tt.devices...)
			var available []string
			for _, c := range all {
				if !slices.Contains(words(tt.used), c.ID) {
					available = append(available, c.ID)
				}
			}
			// The kubelet sends unordered sets.
			for range 5 {
				rand.Shuffle(len(available), func(i, j int) { available[i], available[j] = available[j], available[i] })
				got := Prefer(tt.prefer, all, available, words(tt.must), tt.size)
				if diff := cmp.Diff(words(tt.want), got); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// FuzzPrefer: for any request, the result is valid for the kubelet, and has as many devices as possible.
func FuzzPrefer(f *testing.F) {
	f.Add([]byte{0x11, 0x22, 0x31, 0x12}, []byte{1, 0, 2}, uint8(3), uint8(0))
	f.Add([]byte{0x13, 0x23, 0x33}, []byte{2, 2, 2, 0, 0, 1}, uint8(4), uint8(1))
	f.Fuzz(func(t *testing.T, devices, states []byte, requested, policy uint8) {
		var all []device.Listed
		for i, b := range devices[:min(len(devices), 9)] {
			c := device.Listed{Device: fmt.Sprint("devices/", i)}
			if node := int(b >> 4 & 3); node < 3 {
				c.NUMA = []int{node}
			}
			for k := range 1 + int(b&3) {
				c.ID = device.SlotID(fmt.Sprint("d", i), k)
				all = append(all, c)
			}
		}
		var available, must []string
		for i, c := range all {
			switch {
			case i < len(states) && states[i]%4 == 3:
			case i < len(states) && states[i]%16 == 2 && len(must) < int(requested):
				must = append(must, c.ID)
				available = append(available, c.ID)
			default:
				available = append(available, c.ID)
			}
		}
		size, prefer := int(requested%12), []string{preferNUMA, preferSpread, preferPacked}[policy%3]
		size = max(size, len(must))
		got := Prefer(prefer, all, available, must, size)
		if len(got) != min(size, len(available)) {
			t.Errorf("%d slots, want %d of %d", len(got), size, len(available))
		}
		if len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
			t.Errorf("duplicates: %q", got)
		}
		for _, id := range got {
			if !slices.Contains(available, id) {
				t.Errorf("%q is not available", id)
			}
		}
		for _, id := range must {
			if !slices.Contains(got, id) {
				t.Errorf("%q is not in the answer", id)
			}
		}
	})
}

func BenchmarkPrefer(b *testing.B) {
	shapes := map[string][]string{"1 device": {"a:10000@0"}, "10000 devices": nil, "100 devices": nil}
	for i := range 10000 {
		shapes["10000 devices"] = append(shapes["10000 devices"], fmt.Sprintf("d%d:1@%d", i, i%8))
		if i < 100 {
			shapes["100 devices"] = append(shapes["100 devices"], fmt.Sprintf("d%d:100@%d", i, i%8))
		}
	}
	for _, name := range []string{"1 device", "100 devices", "10000 devices"} {
		all := machine(b, shapes[name]...)
		var available []string
		for i, c := range all {
			if i%5 != 0 {
				available = append(available, c.ID)
			}
		}
		for _, prefer := range []string{preferNUMA, preferSpread, preferPacked} {
			b.Run(name+"/"+prefer, func(b *testing.B) {
				for b.Loop() {
					Prefer(prefer, all, available, available[:1], 8)
				}
			})
		}
	}
}
