package cdi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/device"
)

// stick is a device at a path, with a variable of the device and a constant one.
func stick(id, host, path string) device.Offer {
	return device.Offer{ID: id, CDI: true, Nodes: []device.OfferedNode{ttyNode(host, path), kfd()},
		Env: []device.Entry{perDevice("SERIAL", id), entry("KIND", "stick")}}
}

func TestBuildAlone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		offers []device.Offer
		// want are the paths of nodes, then the environment, by entry.
		want map[string][]string
		left map[string]string
	}{
		{name: "nothing"},
		{
			name:   "one device, and all of them",
			offers: []device.Offer{stick("a", "/dev/ttyUSB0", "/dev/zigbee")},
			want: map[string][]string{
				"a":   {"/dev/zigbee", "/dev/kfd", "KIND=stick", "SERIAL=a"},
				"all": {"/dev/zigbee", "/dev/kfd", "KIND=stick", "SERIAL=a"},
			},
		},
		{
			name:   "companions once, variables joined in the order of IDs",
			offers: []device.Offer{stick("b", "/dev/ttyUSB0", "/dev/ttyUSB0"), stick("a", "/dev/ttyUSB1", "/dev/ttyUSB1")},
			want: map[string][]string{
				"a":   {"/dev/ttyUSB1", "/dev/kfd", "KIND=stick", "SERIAL=a"},
				"b":   {"/dev/ttyUSB0", "/dev/kfd", "KIND=stick", "SERIAL=b"},
				"all": {"/dev/ttyUSB1", "/dev/kfd", "/dev/ttyUSB0", "KIND=stick", "SERIAL=a,b"},
			},
		},
		{
			name:   "two devices at one path can't be together",
			offers: []device.Offer{stick("a", "/dev/ttyUSB0", "/dev/zigbee"), stick("b", "/dev/ttyUSB1", "/dev/zigbee")},
			want: map[string][]string{
				"a": {"/dev/zigbee", "/dev/kfd", "KIND=stick", "SERIAL=a"},
				"b": {"/dev/zigbee", "/dev/kfd", "KIND=stick", "SERIAL=b"},
			},
			left: map[string]string{"all": `would be at "/dev/zigbee" in the container, and so is device "a"`},
		},
		{
			name:   "a device called all is itself",
			offers: []device.Offer{{ID: "all", CDI: true, Nodes: []device.OfferedNode{kfd()}}, stick("a", "/dev/ttyUSB0", "/dev/zigbee")},
			want:   map[string][]string{"all": {"/dev/kfd"}, "a": {"/dev/zigbee", "/dev/kfd", "KIND=stick", "SERIAL=a"}},
		},
		{
			name:   "variables alone are enough",
			offers: []device.Offer{{ID: "virtual:lic", CDI: true, Env: []device.Entry{entry("LICENCE", "1")}}},
			want:   map[string][]string{"virtual:lic": {"LICENCE=1"}, "all": {"LICENCE=1"}},
		},
		{
			name: "what can't be in a spec degrades itself",
			offers: []device.Offer{
				{ID: "pass", CDI: true, CDIDevices: []string{"nvidia.com/gpu=0"}},
				{ID: "index", CDI: true, Nodes: []device.OfferedNode{kfd()}, Env: []device.Entry{entry("DEVICE_${index}", "x")}},
				{ID: "empty", CDI: true},
				{ID: "ill", CDI: true, Problem: "ill", Nodes: []device.OfferedNode{kfd()}},
				{ID: "good", CDI: true, Nodes: []device.OfferedNode{kfd()}},
			},
			want: map[string][]string{"good": {"/dev/kfd"}, "all": {"/dev/kfd"}},
			left: map[string]string{
				"pass":  `can't pass along CDI device "nvidia.com/gpu=0"`,
				"index": "has no value for ${index} here",
				"empty": "brings nothing into a container",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec, left := (&cdi.Resource{Name: resource, Host: fakeHost{}, Alone: true}).Build(tc.offers)
			var got map[string][]string
			if spec != nil {
				got = map[string][]string{}
				for _, d := range spec.Devices {
					for _, n := range d.ContainerEdits.DeviceNodes {
						got[d.Name] = append(got[d.Name], n.Path)
					}
					got[d.Name] = append(got[d.Name], d.ContainerEdits.Env...)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			for id, want := range tc.left {
				if err := left[id]; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("device %q is left out: %v, want %q in it", id, err, want)
				}
			}
			if len(left) != len(tc.left) {
				t.Errorf("left out: %v, want %d", left, len(tc.left))
			}
		})
	}
}
