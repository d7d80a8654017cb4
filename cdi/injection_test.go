package cdi_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

const resource = "example.com/zigbee"

// text parses a text like the configuration.
func text(s string) device.Text {
	var t device.Text
	for s != "" {
		lit, rest, open := strings.Cut(s, "${")
		if lit != "" {
			t = append(t, device.Part{Literal: lit})
		}
		if !open {
			break
		}
		name, after, _ := strings.Cut(rest, "}")
		t = append(t, device.Part{Var: name})
		s = after
	}
	return t
}

func entry(key, value string) device.Entry { return device.Entry{Key: text(key), Value: text(value)} }

func perDevice(key, value string) device.Entry {
	return device.Entry{Key: text(key), Value: text(value), PerDevice: true}
}

func wrapped(key, value string) device.Entry {
	return device.Entry{Key: text(key), Value: text(value), PerDevice: true, Prefix: "{", Suffix: "}"}
}

func ttyNode(host, path string) device.OfferedNode {
	return device.OfferedNode{HostPath: host, Type: device.CharNode, Major: 188, Minor: uint32(host[len(host)-1] - '0'), Key: "if00:ttyUSB", Path: text(path), Permissions: "rw", Follow: true}
}

func kfd() device.OfferedNode {
	return device.OfferedNode{HostPath: "/dev/kfd", Type: device.CharNode, Major: 234, Key: "kfd", Path: text("/dev/kfd"), Permissions: "rw", Companion: true}
}

func linkPath(id, key string) string { return "/run/generic-dp/links/" + id + "/" + key }

var errMissing = errors.New("no such file or directory")

// fakeHost has everything except for what is missing.
type fakeHost struct{ missing []string }

func (h fakeHost) Path(path string) error {
	if slices.Contains(h.missing, path) {
		return errMissing
	}
	return nil
}

func (h fakeHost) CDI(name string) error { return h.Path(name) }

func (h fakeHost) Node(path string, n device.OfferedNode) error {
	if path != n.HostPath && h.Path(path) != nil {
		return fmt.Errorf("link %q: %w", path, errMissing)
	}
	if err := h.Path(n.HostPath); err != nil {
		return fmt.Errorf("node %q: %w", n.HostPath, err)
	}
	return nil
}

func TestRespond(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		offers  []device.Offer
		missing []string
		want    device.Response
		wantErr []string
	}{
		{
			name:   "a node is injected by its link",
			offers: []device.Offer{{ID: "a", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/zigbee")}}},
			want:   device.Response{Nodes: []device.InjectedNode{{HostPath: "/run/generic-dp/links/a/if00:ttyUSB", ContainerPath: "/dev/zigbee", Permissions: "rw"}}},
		},
		{
			name:   "a node without hardware is injected by its path",
			offers: []device.Offer{{ID: "fuse", Nodes: []device.OfferedNode{{HostPath: "/dev/fuse", Key: "fuse", Path: text("/dev/fuse"), Permissions: "rwm"}}}},
			want:   device.Response{Nodes: []device.InjectedNode{{HostPath: "/dev/fuse", ContainerPath: "/dev/fuse", Permissions: "rwm"}}},
		},
		{
			name: "devices in order of ID, slots once, companions once",
			offers: []device.Offer{
				{ID: "b", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/tty${index}of${count}"), kfd()}},
				{ID: "a", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB1", "/dev/tty${index}of${count}"), kfd()}},
				{ID: "b", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/tty${index}of${count}"), kfd()}},
			},
			want: device.Response{Nodes: []device.InjectedNode{
				{HostPath: "/run/generic-dp/links/a/if00:ttyUSB", ContainerPath: "/dev/tty0of2", Permissions: "rw"},
				{HostPath: "/dev/kfd", ContainerPath: "/dev/kfd", Permissions: "rw"},
				{HostPath: "/run/generic-dp/links/b/if00:ttyUSB", ContainerPath: "/dev/tty1of2", Permissions: "rw"},
			}},
		},
		{
			name: "mounts: a missing optional one is left out, one and the same is given once",
			offers: []device.Offer{
				{ID: "a", Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", ReadOnly: true}, {HostPath: "/opt/gone", ContainerPath: "/gone", Optional: true}}},
				{ID: "b", Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", ReadOnly: true}}},
			},
			missing: []string{"/opt/gone"},
			want:    device.Response{Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", ReadOnly: true}}},
		},
		{
			name: "environment",
			offers: []device.Offer{
				{ID: "b", Env: []device.Entry{perDevice("SERIALS", "B"), entry("MODE", "fast"), entry("N", "${count}"), entry("DEV_${index}", "B"), entry("AT", "${index}")},
					Annotations: []device.Entry{perDevice("example.com/serials", "B")}},
				{ID: "a", Env: []device.Entry{perDevice("SERIALS", "A"), entry("MODE", "fast"), entry("N", "${count}"), entry("DEV_${index}", "A"), entry("AT", "${index}")},
					Annotations: []device.Entry{perDevice("example.com/serials", "A")}},
			},
			want: device.Response{
				Env:         map[string]string{"SERIALS": "A,B", "MODE": "fast", "N": "2", "DEV_0": "A", "DEV_1": "B", "AT": "0,1"},
				Annotations: map[string]string{"example.com/serials": "A,B"},
			},
		},
		{
			name: "cdi: names instead of nodes and mounts, the environment as ever",
			offers: []device.Offer{
				{ID: "b", CDI: true, Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB1", "/dev/b")}, Env: []device.Entry{perDevice("SERIALS", "B")}},
				{ID: "a", CDI: true, Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/a")}, Env: []device.Entry{perDevice("SERIALS", "A")},
					Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw"}}},
			},
			want: device.Response{CDI: []string{"example.com/zigbee=a", "example.com/zigbee=b"}, Env: map[string]string{"SERIALS": "A,B"}},
		},
		{
			name:   "cdi: a device whose entry may have no edits is injected directly",
			offers: []device.Offer{{ID: "a", CDI: true, Env: []device.Entry{entry("X", "1")}, Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", Optional: true}}}},
			want:   device.Response{Env: map[string]string{"X": "1"}, Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", Optional: true}}},
		},
		{
			name: "joined with a separator, wrapped as a whole",
			offers: []device.Offer{
				{ID: "b", Env: []device.Entry{wrapped("INFO", `"b":{}`), {Key: text("PATHS"), Value: text("/b"), PerDevice: true, Separator: ":"}}},
				{ID: "a", Env: []device.Entry{wrapped("INFO", `"a":{}`), {Key: text("PATHS"), Value: text("/a"), PerDevice: true, Separator: ":"}}},
			},
			want: device.Response{Env: map[string]string{"INFO": `{"a":{},"b":{}}`, "PATHS": "/a:/b"}},
		},
		{
			name: "the host's CDI devices are passed along, once each",
			offers: []device.Offer{
				{ID: "b", CDI: true, Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB1", "/dev/b")}, CDIDevices: []string{"nvidia.com/gpu=1", "nvidia.com/fabric=all"}},
				{ID: "a", Nodes: []device.OfferedNode{kfd()}, CDIDevices: []string{"nvidia.com/gpu=0", "nvidia.com/fabric=all"}},
			},
			want: device.Response{
				Nodes: []device.InjectedNode{{HostPath: "/dev/kfd", ContainerPath: "/dev/kfd", Permissions: "rw"}},
				CDI:   []string{"nvidia.com/gpu=0", "nvidia.com/fabric=all", "example.com/zigbee=b", "nvidia.com/gpu=1"},
			},
		},
		{
			name: "amounts of shared capacities, as plain numbers",
			offers: []device.Offer{{
				ID:       "a",
				Capacity: map[string]device.Capacity{"bandwidth": {Value: "10G"}, "part": {Value: "1"}, "memory": {Value: "1Gi"}},
				Amounts:  map[string]string{"bandwidth": "7500M", "part": "0.5"},
				Env:      []device.Entry{entry("BANDWIDTH", "${capacity.bandwidth}"), entry("PART", "${capacity.part}"), entry("MEMORY", "${capacity.memory}")},
			}},
			want: device.Response{Env: map[string]string{"BANDWIDTH": "7500000000", "PART": "0.5", "MEMORY": "0"}},
		},
		{
			name: "cdi: a device with only interfaces or hooks is injected by name",
			offers: []device.Offer{
				{ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0"}}},
				{ID: "b", CDI: true, Nets: []device.OfferedNet{{HostName: "can1", Name: "can-b"}}},
				{ID: "c", CDI: true, Hooks: []device.Hook{{Name: "createContainer", Path: "/bin/true"}}},
			},
			want: device.Response{CDI: []string{"example.com/zigbee=a", "example.com/zigbee=b", "example.com/zigbee=c"}},
		},
		{
			name: "no devices",
		},

		{
			name:    "two devices at one path",
			offers:  []device.Offer{{ID: "a", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/zigbee")}}, {ID: "b", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB1", "/dev//zigbee")}}},
			wantErr: []string{`device "b"`, `device "a"`, `"/dev/zigbee"`},
		},
		{
			name:    "node gone",
			offers:  []device.Offer{{ID: "a", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/zigbee")}}},
			missing: []string{"/dev/ttyUSB0"},
			wantErr: []string{`device "a": node "/dev/ttyUSB0": no such file or directory`},
		},
		{
			name:    "mount gone",
			offers:  []device.Offer{{ID: "a", Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw"}}}},
			missing: []string{"/opt/fw"},
			wantErr: []string{`device "a": mount "/opt/fw": no such file or directory`},
		},
		{
			name:    "problem",
			offers:  []device.Offer{{ID: "a", Problem: "companion /dev/kfd is missing"}},
			wantErr: []string{`device "a": can't be injected: companion /dev/kfd is missing`},
		},
		{
			name:    "variable without a value",
			offers:  []device.Offer{{ID: "a", Env: []device.Entry{entry("X", "${usb.serial}")}}},
			wantErr: []string{`device "a": env "X"`, "${usb.serial}"},
		},
		{
			name:    "index in the path of a cdi device",
			offers:  []device.Offer{{ID: "a", CDI: true, Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/tty${index}")}}},
			wantErr: []string{`device "a"`, `"/dev/ttyUSB0"`, "${index}"},
		},
		{
			name:    "CDI device of the host gone",
			offers:  []device.Offer{{ID: "a", CDIDevices: []string{"nvidia.com/gpu=0"}}},
			missing: []string{"nvidia.com/gpu=0"},
			wantErr: []string{`device "a": CDI device "nvidia.com/gpu=0": no such file or directory`},
		},
		{
			name: "two interfaces of one name",
			offers: []device.Offer{
				{ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0", Name: "can"}}},
				{ID: "b", CDI: true, Nets: []device.OfferedNet{{HostName: "can1", Name: "can"}}},
			},
			wantErr: []string{`device "b"`, "interface can", `device "a"`, "net_name"},
		},
		{
			name:    "two interfaces of one device with one name",
			offers:  []device.Offer{{ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0", Name: "can"}, {HostName: "can1", Name: "can"}}}},
			wantErr: []string{`device "a": interface can would be in the container twice`},
		},
		{
			name:    "interface gone",
			offers:  []device.Offer{{ID: "a", CDI: true, Nets: []device.OfferedNet{{HostName: "can0"}}}},
			missing: []string{"/sys/class/net/can0"},
			wantErr: []string{`device "a": interface "can0": no such file or directory`},
		},
		{
			name:    "interface without cdi",
			offers:  []device.Offer{{ID: "a", Nets: []device.OfferedNet{{HostName: "can0"}}}},
			wantErr: []string{`device "a": interface "can0": only a CDI name moves it`},
		},
		{
			name:    "interface in a container already",
			offers:  []device.Offer{{ID: "a", CDI: true, NetsInContainer: true}},
			wantErr: []string{`device "a": can't be injected: its network interface is in a container already`},
		},
		{
			name:    "one variable set twice",
			offers:  []device.Offer{{ID: "a", Env: []device.Entry{entry("X_0", "1"), entry("X_${index}", "2")}}},
			wantErr: []string{`device "a": env "X_0" is set twice`},
		},
		{
			name:    "impossible name",
			offers:  []device.Offer{{ID: "a", Env: []device.Entry{entry("X=Y", "1")}}},
			wantErr: []string{`device "a": env: "X=Y" can't be a name`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			asked := slices.Clone(tc.offers)
			got, err := respond(&cdi.Resource{Name: resource, Link: linkPath, Host: fakeHost{tc.missing}}, tc.offers...)
			equal(t, "offers were changed", asked, tc.offers)
			if tc.wantErr == nil {
				must(t, err)
				equal(t, "response", tc.want, got)
				return
			}
			if err == nil {
				t.Fatalf("response = %+v, want an error", got)
			}
			for _, part := range tc.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error = %q, want %q in it", err, part)
				}
			}
			equal(t, "a response besides the error", device.Response{}, got)
		})
	}
}

func respond(r *cdi.Resource, offers ...device.Offer) (device.Response, error) {
	offers = slices.SortedFunc(slices.Values(offers), func(a, b device.Offer) int { return strings.Compare(a.ID, b.ID) })
	offers = slices.CompactFunc(offers, func(a, b device.Offer) bool { return a.ID == b.ID })
	response, err := r.Respond(offers)
	response.Places = nil // see TestRequestsOfAClaimAreTogether of the agent
	return response, err
}

// The existence of its parts is checked for each container.
func TestRespondChecksEachTime(t *testing.T) {
	t.Parallel()
	offer := device.Offer{ID: "a", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "")},
		Mounts: []device.Mount{{HostPath: "/opt/fw", ContainerPath: "/fw", Optional: true}}}
	for _, optional := range []bool{true, false} {
		for _, tc := range []struct {
			missing []string
			nodes   int
			mounts  int
		}{{nil, 1, 1}, {[]string{"/opt/fw"}, 1, 0}, {[]string{"/dev/ttyUSB0"}, 0, 0}, {nil, 1, 1}} {
			if !optional {
				offer.Mounts, tc.mounts = nil, 0
			}
			r := &cdi.Resource{Name: resource, Host: fakeHost{tc.missing}}
			got, err := r.Respond([]device.Offer{offer})
			if (err == nil) != (tc.nodes > 0) || len(got.Nodes) != tc.nodes || len(got.Mounts) != tc.mounts {
				t.Errorf("missing %q: %+v, %v; want %d nodes and %d mounts", tc.missing, got, err, tc.nodes, tc.mounts)
			}
		}
	}
}

func BenchmarkRespond(b *testing.B) {
	offer := device.Offer{ID: "a", Nodes: []device.OfferedNode{ttyNode("/dev/ttyUSB0", "/dev/zigbee")}, Env: []device.Entry{perDevice("SERIALS", "A"), entry("N", "${count}")}}
	r := &cdi.Resource{Name: resource, Link: linkPath, Host: fakeHost{}}
	offers := []device.Offer{offer}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Respond(offers); err != nil {
			b.Fatal(err)
		}
	}
}
