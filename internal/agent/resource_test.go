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
		{Offer: offer("a"), Present: true, Healthy: true, Listed: 3},
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
