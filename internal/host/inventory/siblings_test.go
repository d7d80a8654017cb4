package inventory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// A container takes its interface out of sysfs. The ID of an interface must not move to another one of
// the same hardware, even across a restart or a reboot.
func TestNumberOfNetDoesNotDependOnVisibleSiblings(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	adapter := sysfstest.USB{Port: "1-1", Vendor: "1d50", Product: "606f", Serial: "A", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "gs_usb"}}}
	stick := h.AddUSB(adapter) + "/1-1:1.0"
	add := func(name string) string {
		return h.AddNet(stick, sysfstest.Net{Name: name, Type: 280})
	}
	s := newScanner(h)
	keys := func() map[string]string {
		t.Helper()
		snap, err := s.Scan(t.Context())
		for err == nil && len(snap.UnreadHardware) > 0 { // on a busy machine
			snap, err = s.Scan(t.Context())
		}
		must(t, err)
		found := make(map[string]string)
		for _, n := range snap.Nets {
			found[n.Path] = device.NodeKeys(n.Hardware)[n]
		}
		return found
	}
	want := func(when string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, keys()); diff != "" {
			t.Errorf("%s: keys (-want +got):\n%s", when, diff)
		}
	}
	can0 := add("can0")
	can1 := add("can1")
	want("at first", map[string]string{"can0": "if00:net", "can1": "if00:net.1"})
	h.Remove(can0)
	want("without can0", map[string]string{"can1": "if00:net.1"})
	can2 := add("can2")
	want("with another one meanwhile", map[string]string{"can1": "if00:net.1", "can2": "if00:net.2"})
	for _, isSameBoot := range []bool{true, false} {
		known := s.KnownNets()
		s = newScanner(h)
		s.RestoreNets(known, isSameBoot)
		want("after a restart", map[string]string{"can1": "if00:net.1", "can2": "if00:net.2"})
	}
	can0 = add("can0")
	want("with all of them", map[string]string{"can0": "if00:net", "can1": "if00:net.1", "can2": "if00:net.2"})
	for _, dir := range []string{can0, can1, can2} {
		h.Remove(dir)
	}
	want("without any", map[string]string{})
	// The driver was bound again, and made other interfaces.
	add("can5")
	add("can6")
	want("after the driver was bound again", map[string]string{"can5": "if00:net", "can6": "if00:net.1"})
}
