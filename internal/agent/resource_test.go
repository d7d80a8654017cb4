package agent

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
)

func TestAllocateOnlyWhatIsListedAndHealthy(t *testing.T) {
	t.Parallel()
	r := newResource(cdi.Resource{Name: "example.com/gpu"}, nil)
	offer := func(id string) device.Offer {
		return device.Offer{ID: id, Slots: 2, Env: []device.Entry{{Key: device.Literal("GPU"), Value: device.Literal(id), PerDevice: true}}}
	}
	r.publish([]ledger.Entry{
		{Offer: offer("a"), Healthy: true, Listed: 3},
		{Offer: offer("b"), Reason: "unplugged", Listed: 2},
		{Offer: offer("c"), Healthy: true, Listed: 2},
	}, &config.Resource{})
	for _, tc := range []struct{ ids, env, wantErr string }{
		{ids: "a", env: "a"},
		{ids: "c a a::1", env: "a,c"},
		{ids: "a z", wantErr: `device "z" is not known: it was removed, or has another ID now`},
		{ids: "a::3", wantErr: `device "a::3" is not known`},
		{ids: "c b::1", wantErr: `device "b::1" is unhealthy: unplugged`},
		{ids: "a::2", wantErr: `device "a::2" is unhealthy: ` + ledger.ReasonSlotRetired},
	} {
		got, err := r.Allocate(t.Context(), strings.Fields(tc.ids))
		if got.Env["GPU"] != tc.env || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%s: %v, %v; want %s or %q", tc.ids, got, err, tc.env, tc.wantErr)
		}
	}
}

func TestMaxPerContainer(t *testing.T) {
	t.Parallel()
	r := newResource(cdi.Resource{Name: "example.com/gpu"}, nil)
	entries := []ledger.Entry{{Offer: device.Offer{ID: "a", Slots: 4}, Listed: 4, Healthy: true}, {Offer: device.Offer{ID: "b", Slots: 4}, Listed: 4, Healthy: true}}
	for _, tc := range []struct {
		limit        int
		ids, wantErr string
	}{
		{0, "a a::1 a::2", ""},
		{1, "a b", ""},
		{1, "b a::3 a", `device "a": more of its slots for one container than container.max_per_container = 1`},
		{2, "a a::1 b::1 b", ""},
		{2, "b a a::1 a::3", `device "a": more of its slots for one container than container.max_per_container = 2`},
	} {
		r.publish(entries, &config.Resource{Container: config.Container{MaxPerContainer: tc.limit}})
		if _, err := r.Allocate(t.Context(), strings.Fields(tc.ids)); (err == nil) != (tc.wantErr == "") || err != nil && err.Error() != tc.wantErr {
			t.Errorf("%d, %s: %v; want %q", tc.limit, tc.ids, err, tc.wantErr)
		}
	}
}

// A call to a remote file system, or a wait for a scan, is abandoned after a timeout.
func TestBlockingAllocate(t *testing.T) {
	t.Parallel()
	r := newResource(cdi.Resource{Name: "example.com/gpu"}, nil)
	offers := []device.Offer{
		{ID: "cdi", CDIDevices: []string{"nvidia.com/gpu=0"}},
		{ID: "mount", Mounts: []device.Mount{{HostPath: "/nfs", ContainerPath: "/nfs"}}},
		{ID: "net", CDI: true, Nets: []device.OfferedNet{{HostName: "can0"}}},
		{ID: "node", Nodes: []device.OfferedNode{{HostPath: "/dev/gpu", Type: device.CharNode}}},
	}
	var entries []ledger.Entry
	for _, o := range offers {
		entries = append(entries, ledger.Entry{Offer: o, Listed: o.Slots, Healthy: true})
		r.publish(entries[len(entries)-1:], &config.Resource{})
		if got := r.Blocks(); got != (o.ID != "node") {
			t.Errorf("%s: Blocks = %t", o.ID, got)
		}
	}
	if r.publish(entries, &config.Resource{}); !r.Blocks() {
		t.Error("several devices: want Blocks")
	}
}

// A device that moves to another node keeps the list, and no stream wakes.
func TestPublishWakesStreamsForAnotherListOnly(t *testing.T) {
	t.Parallel()
	r := newResource(cdi.Resource{Name: "example.com/gpu"}, nil)
	entry := func(path string, healthy bool) []ledger.Entry {
		return []ledger.Entry{{Offer: device.Offer{ID: "a", Slots: 1, Nodes: []device.OfferedNode{{HostPath: path}}}, Listed: 1, Healthy: healthy}}
	}
	for i, step := range []struct {
		path    string
		healthy bool
		want    bool
	}{{"/dev/a", true, true}, {"/dev/b", true, false}, {"/dev/b", false, true}} {
		_, changed := r.Devices()
		entries := entry(step.path, step.healthy)
		if got := r.publish(entries, &config.Resource{}); got != step.want {
			t.Errorf("step %d: publish = %t", i, got)
		}
		select {
		case <-changed:
			if !step.want {
				t.Errorf("step %d: streams wake", i)
			}
		default:
			if step.want {
				t.Errorf("step %d: no stream wakes", i)
			}
		}
		if got := r.now.Load().entries[0].Offer.Nodes[0].HostPath; got != step.path {
			t.Errorf("step %d: published %q, want %q", i, got, step.path)
		}
	}
}
