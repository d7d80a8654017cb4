package sysfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKFDNodes(t *testing.T) {
	t.Parallel()
	const nodes = "devices/virtual/kfd/kfd/topology/nodes/"
	sys := tree(t, map[string]string{
		nodes + "0/properties": "cpu_cores_count 96\nlocation_id 0\ndomain 0\ndrm_render_minor 0\n",
		nodes + "1/properties": "cpu_cores_count 0\nlocation_id 2560\ndomain 0\ndrm_render_minor 128\nunique_id 18446744073709551615\n",
		// The third partition of the device 3 on bus c9.
		nodes + "2/properties": "location_id 51482\ndomain 1\ndrm_render_minor 187\n",
		nodes + "3/gpu_id":     "1\n",
		nodes + "4/properties": "drm_render_minor none\nlocation_id\n",
	})
	found, unreadable, err := sys.KFDNodes()
	want := []KFDNode{
		{RenderMinor: 128, Function: "0000:0a:00.0"},
		{RenderMinor: 187, Function: "0001:c9:03.0"},
	}
	byMinor := cmp.Transformer("byMinor", func(list []KFDNode) map[uint32]string {
		functions := make(map[uint32]string)
		for _, n := range list {
			functions[n.RenderMinor] = n.Function
		}
		return functions
	})
	if diff := cmp.Diff(want, found, byMinor); diff != "" || unreadable != 0 || err != nil {
		t.Errorf("unreadable %d, %v\n%s", unreadable, err, diff)
	}
	found, _, err = tree(t, nil).KFDNodes()
	if len(found) > 0 || err != nil {
		t.Errorf("without KFD: found %v, %v", found, err)
	}
}
