package plugin

import (
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/device"
)

// wireSize is the size of a list as gRPC writes it.
func wireSize(t *testing.T, list []device.Listed) int {
	t.Helper()
	data, err := encoding.GetCodecV2("proto").Marshal(message(list))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	return data.Len()
}

func TestMaxSize(t *testing.T) {
	t.Parallel()
	lists := [][]device.Listed{
		nil,
		{{}},
		healthy("a"),
		{unhealthy("a", "a long reason that is not sent")},
		{{ID: strings.Repeat("x", 63), Healthy: true, NUMA: []int{0, 1, 127, 128, 1 << 20}}},
		{{ID: strings.Repeat("x", 200), NUMA: []int{-1}}},
		{{ID: "a", NUMA: []int{-1, 0}}},
		{{ID: "a", NUMA: make([]int, 80)}},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var list []device.Listed
		for range random.IntN(50) {
			d := device.Listed{ID: strings.Repeat("i", random.IntN(300)), Healthy: random.IntN(2) == 0}
			for range random.IntN(4) {
				d.NUMA = append(d.NUMA, random.IntN(300)-2)
			}
			list = append(list, d)
		}
		lists = append(lists, list)
	}
	for _, list := range lists {
		most := 0
		for i := range list {
			list[i].Healthy = false
			most += maxSize(&list[i])
		}
		if got := wireSize(t, list); got > most {
			t.Errorf("%+v: takes %d, want at most %d", list, got, most)
		}
	}
}

func TestTopology(t *testing.T) {
	t.Parallel()
	tests := []struct {
		numa []int
		want []int64 // nil: no TopologyInfo at all
	}{
		{nil, nil},
		{[]int{}, nil},
		{[]int{-1}, nil},
		{[]int{0}, []int64{0}},
		{[]int{0, 1}, []int64{0, 1}},
		{[]int{-1, 3}, []int64{3}},
	}
	for _, tt := range tests {
		d := message([]device.Listed{{ID: "a", Healthy: true, NUMA: tt.numa}}).Devices[0]
		if tt.want == nil {
			if d.Topology != nil {
				t.Errorf("%v: got %v, want no topology", tt.numa, d.Topology)
			}
			continue
		}
		if len(d.Topology.GetNodes()) != len(tt.want) {
			t.Errorf("%v: got %v", tt.numa, d.Topology)
			continue
		}
		for i, node := range d.Topology.Nodes {
			if node.ID != tt.want[i] {
				t.Errorf("%v: got %v, want %v", tt.numa, d.Topology, tt.want)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s := testServer(newSource(), nil)
	o, err := s.GetDevicePluginOptions(t.Context(), &v1beta1.Empty{})
	if err != nil || o.PreStartRequired || !o.GetPreferredAllocationAvailable {
		t.Errorf("options: got %v, %v", o, err)
	}
	if resp, err := s.PreStartContainer(t.Context(), &v1beta1.PreStartContainerRequest{DevicesIds: []string{"a"}}); err != nil || resp == nil {
		t.Errorf("PreStartContainer: got %v, %v", resp, err)
	}
}
