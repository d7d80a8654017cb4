package cdi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

// A device that is injected both ways has the same nodes in its entry, and nothing that an
// Allocate call gives once.
func TestBuildBesideLinks(t *testing.T) {
	t.Parallel()
	offer := device.Offer{ID: "a", AlsoCDI: true,
		Nodes:  []device.OfferedNode{ttyNode("/dev/ttyUSB3", "/dev/ttyUSB3")},
		Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", ReadOnly: true}},
	}
	edits := build(t, resource, offer).Devices[0].ContainerEdits
	if len(edits.DeviceNodes) != 1 || edits.DeviceNodes[0].HostPath != "/dev/ttyUSB3" || len(edits.Mounts) != 0 {
		t.Errorf("entry = %+v, want only the node", edits)
	}
	got, err := respond(&cdi.Resource{Name: resource, Link: linkPath, Host: fakeHost{}}, offer)
	must(t, err)
	want := device.Response{
		Nodes:  []device.InjectedNode{{HostPath: linkPath("a", "if00:ttyUSB"), ContainerPath: "/dev/ttyUSB3", Permissions: "rw"}},
		Mounts: offer.Mounts, CDI: []string{resource + "=a"},
	}
	equal(t, "response", want, got)
	// ${index} is unknown when a spec is written: links suffice.
	offer.Nodes = append(offer.Nodes, ttyNode("/dev/ttyUSB4", "/dev/tty-${index}"))
	spec, failed := (&cdi.Resource{Name: resource, Host: fakeHost{}}).Build([]device.Offer{offer})
	if spec != nil || failed["a"] == nil {
		t.Errorf("spec = %v, left out: %v, want it left out", spec, failed)
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		kind    string
		offers  []device.Offer
		want    []string
		version string
		wantErr string
	}{
		{name: "nothing"},
		{name: "sorted", offers: []device.Offer{gpu("b", "/dev/ttyUSB1"), gpu("a", "/dev/ttyUSB0")}, want: []string{"a", "b"}, version: "0.5.0"},
		{name: "an interface", offers: []device.Offer{gpu("b", "/dev/ttyUSB1"), {ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0"}}}}, want: []string{"a", "b"}, version: "1.1.0"},
		{name: "an interface that has moved", offers: []device.Offer{{ID: "a", CDI: true, NetsInContainer: true, Nets: []device.OfferedNet{{HostName: "can0"}}}}, want: []string{"a"}, version: "0.7.0"},
		{
			name:    "two interfaces of one name",
			offers:  []device.Offer{gpu("b", "/dev/ttyUSB1"), {ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0", Name: "c"}, {HostName: "can1", Name: "c"}}}},
			want:    []string{"b"},
			version: "0.5.0",
			wantErr: `duplicate Name "c"`,
		},
		{
			name:    "one interface twice",
			offers:  []device.Offer{{ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0", Name: "c"}, {HostName: "can0", Name: "d"}}}},
			wantErr: "duplicate HostInterfaceName",
		},
		{name: "bad hook", offers: []device.Offer{{ID: "a", CDI: true, Hooks: []device.Hook{{Name: "never", Path: "/bin/true"}}}}, wantErr: `invalid hook name "never"`},
		{name: "dot in the name of the resource", kind: "example.com/gpu.large", offers: []device.Offer{gpu("a", "/dev/ttyUSB0")}, want: []string{"a"}, version: "0.6.0"},
		{name: "plain ones are not in it", offers: []device.Offer{{ID: "a", Nodes: []device.OfferedNode{kfd()}}}},
		{name: "one with a problem is not in it", offers: []device.Offer{{ID: "a", CDI: true, Problem: "gone", Nodes: []device.OfferedNode{kfd()}}}},
		{name: "one without edits is not in it", offers: []device.Offer{{ID: "a", CDI: true}, gpu("b", "/dev/ttyUSB1")}, want: []string{"b"}, version: "0.5.0"},
		{
			name:    "a bad device degrades itself",
			offers:  []device.Offer{{ID: "a", CDI: true, Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/x${index}")}}, gpu("b", "/dev/ttyUSB1")},
			want:    []string{"b"},
			version: "0.5.0",
			wantErr: `path of "/dev/ttyUSB0" in the container`,
		},
		{name: "bad permissions", offers: []device.Offer{{ID: "a", CDI: true, Nodes: []device.OfferedNode{{HostPath: "/dev/x", Type: device.CharNode, Permissions: "x"}}}}, wantErr: `invalid permissions "x"`},
		{name: "bad kind", kind: "1example.com/gpu", offers: []device.Offer{gpu("a", "/dev/ttyUSB0")}, wantErr: "should start with letter"},
		{name: "bad ID", offers: []device.Offer{gpu("a/b", "/dev/ttyUSB0")}, wantErr: "invalid character"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.kind == "" {
				tc.kind = "example.com/gpu"
			}
			spec, failed := (&cdi.Resource{Name: tc.kind, Host: fakeHost{}}).Build(tc.offers)
			if tc.wantErr == "" && len(failed) > 0 || tc.wantErr != "" && (failed["a"] == nil && failed["a/b"] == nil || !strings.Contains(fmt.Sprint(failed), tc.wantErr)) {
				t.Errorf("failed = %v, want %q in it", failed, tc.wantErr)
			}
			var names []string
			if spec != nil {
				for _, d := range spec.Devices {
					names = append(names, d.Name)
				}
				if spec.Version != tc.version {
					t.Errorf("version = %q, want %q", spec.Version, tc.version)
				}
			}
			equal(t, "devices", tc.want, names)
		})
	}
}

// stick is a device at a path, with a variable of the device and a constant one.
func stick(id, host, path string) device.Offer {
	return device.Offer{ID: id, CDI: true, Nodes: []device.OfferedNode{ttyNode(host, path), kfd()},
		Env: []device.Entry{perDevice("SERIAL", id), entry("KIND", "stick")}}
}

func TestBuildCDIOnly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		offers []device.Offer
		// want are the paths of nodes, then the environment, by entry.
		want   map[string][]string
		failed map[string]string
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
			failed: map[string]string{"all": `would be at "/dev/zigbee" in the container, like device "a"`},
		},
		{
			name:   "a device called all is itself",
			offers: []device.Offer{{ID: "all", CDI: true, Nodes: []device.OfferedNode{kfd()}}, stick("a", "/dev/ttyUSB0", "/dev/zigbee")},
			want:   map[string][]string{"all": {"/dev/kfd"}, "a": {"/dev/zigbee", "/dev/kfd", "KIND=stick", "SERIAL=a"}},
		},
		{
			name:   "only variables are enough",
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
			// Only all devices together have a known place in their container.
			want: map[string][]string{"good": {"/dev/kfd"}, "index": {"/dev/kfd"}, "all": {"/dev/kfd", "DEVICE_1=x"}},
			failed: map[string]string{
				"pass":  `can't pass along CDI device "nvidia.com/gpu=0"`,
				"empty": "contains nothing to inject",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec, failed := (&cdi.Resource{Name: resource, Host: fakeHost{}, CDIOnly: true}).Build(tc.offers)
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
			equal(t, "entries", tc.want, got)
			for id, want := range tc.failed {
				if err := failed[id]; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("device %q is left out: %v, want %q in it", id, err, want)
				}
			}
			if len(failed) != len(tc.failed) {
				t.Errorf("left out: %v, want %d", failed, len(tc.failed))
			}
		})
	}
}

func TestFileName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 240) + ".example.com/"
	names := map[string]string{}
	for _, owner := range []string{"", "/run/gdp-a", "/run/gdp-b"} {
		w := &cdi.Writer{Owner: owner}
		for _, kind := range []string{"example.com/gpu", "example.com/gpu_x", long + "a", long + "b"} {
			name := w.FileName(kind)
			if len(name) > 255 || strings.Contains(name, "/") || !strings.HasPrefix(name, "generic-dp_") || !strings.HasSuffix(name, ".json") {
				t.Errorf("FileName(%q) = %q", kind, name)
			}
			if other, ok := names[name]; ok {
				t.Errorf("%q and %q share the file %q", kind, other, name)
			}
			names[name] = owner + kind
		}
	}
	if got, want := (&cdi.Writer{}).FileName("example.com/gpu"), "generic-dp_example.com_gpu.json"; got != want {
		t.Errorf("without an owner the file is %q, want %q, as it always was", got, want)
	}
}

// The edits of a CDI name equal the direct injection.
func TestInjectionsAgree(t *testing.T) {
	t.Parallel()
	offer := device.Offer{ID: "a", CDI: true,
		Nodes:  []device.OfferedNode{ttyNode("/dev/ttyUSB3", "/dev/zigbee"), kfd()},
		Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw/", ReadOnly: true}},
	}
	edits := build(t, resource, offer).Devices[0].ContainerEdits
	offer.CDI = false
	plain, err := respond(&cdi.Resource{Name: resource, Host: fakeHost{}}, offer)
	must(t, err)
	var byName device.Response
	for _, n := range edits.DeviceNodes {
		byName.Nodes = append(byName.Nodes, device.InjectedNode{HostPath: n.HostPath, ContainerPath: n.Path, Permissions: n.Permissions})
	}
	for _, m := range edits.Mounts {
		byName.Mounts = append(byName.Mounts, device.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, ReadOnly: m.Options[2] == "ro"})
	}
	equal(t, "plain and by name", plain, byName)
}
