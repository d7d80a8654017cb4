package matchers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

// A capacity that the API server would refuse makes only its own device Unhealthy.
func TestCapacity(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	for _, tc := range []struct {
		value, attr string
		want        string // value as published, empty if there is a problem
		problem     string
	}{
		{value: "${attr:vram}", attr: "8589934592\n", want: "8589934592"},
		{value: "${attr:speed}M", attr: "10000", want: "10G"},
		{value: "${attr:vram}", attr: "0x10", problem: `capacity.memory.value: "0x10" is not a quantity`},
		{value: "${attr:vram}", attr: "-1", problem: `capacity.memory.value: "-1" is not a quantity`},
		{value: "${attr:vram}", attr: "1", problem: "capacity.memory.default: 2 is more than value: 1"},
		{value: "${attr:vram}", attr: "", problem: "capacity.memory: ${attr:vram} has no value"},
	} {
		opts := opts
		host(&opts).attr = attrValues(tc.attr)
		cfg := parse(t, `[[resource]]
name = "x"
api = "dra"
count = 2
match.glob = "/dev/dri/*"
capacity.memory = { value = "`+tc.value+`", default = 2 }
container.env.MEMORY = "${capacity.memory}"
`)
		o := matchers.Match(cfg, snap, nil, opts).Resources[0].Offers[0]
		if !strings.Contains(o.Problem, tc.problem) || tc.problem == "" && o.Problem != "" {
			t.Errorf("%s of %q: problem %q, want %q", tc.value, tc.attr, o.Problem, tc.problem)
		}
		want := map[string]device.Capacity{}
		if tc.want != "" {
			want["memory"] = device.Capacity{Value: tc.want, Default: "2"}
		}
		if diff := cmp.Diff(want, o.Capacity); diff != "" {
			t.Errorf("%s of %q: capacity (-want +got):\n%s", tc.value, tc.attr, diff)
		}
	}
}
