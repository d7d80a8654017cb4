package ledger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

// stick returns a USB serial adapter in a port of one controller.
func stick(serial, chain string) *device.Hardware {
	return &device.Hardware{
		Bus: device.USBBus, Name: "1-" + chain, Path: "devices/pci0000:00/0000:00:14.0/usb1/1-" + chain,
		USB: &device.USB{Vendor: "10c4", Product: "ea60", Serial: serial, Controller: "0000:00:14.0", Chain: chain, Speed: "12"},
	}
}

// ids returns the ID of each device by its port, with the decisions of Identify.
func ids(t *testing.T, d *Decisions, present ...*device.Hardware) map[string]string {
	t.Helper()
	// Decisions must survive a restart.
	text, err := json.Marshal(*d)
	must(t, err)
	var prev Decisions
	must(t, json.Unmarshal(text, &prev))
	forms, next := Identify(&device.Snapshot{Hardware: present}, prev)
	reversed := slices.Clone(present)
	slices.Reverse(reversed)
	if again, againNext := Identify(&device.Snapshot{Hardware: reversed}, prev); !cmp.Equal(forms, again) || !cmp.Equal(next, againNext) {
		t.Error("the order of the devices decides")
	}
	if again, againNext := Identify(&device.Snapshot{Hardware: present}, next); !cmp.Equal(forms, again) || !cmp.Equal(next, againNext) {
		t.Error("a second call for the same devices differs")
	}
	*d = next
	got := make(map[string]string)
	for _, h := range present {
		got[h.USB.Chain] = strings.TrimPrefix(device.HardwareID(h, forms.Of(h)), "usb:10c4:ea60:")
	}
	return got
}

func port(chain string) string { return "port:0000:00:14.0:" + chain }

func TestIdentify(t *testing.T) {
	t.Parallel()
	const s = "A1B2C3"
	type step struct {
		name    string
		present []*device.Hardware
		want    map[string]string
	}
	alone := func(chain string) []*device.Hardware { return []*device.Hardware{stick(s, chain)} }
	both := []*device.Hardware{stick(s, "1"), stick(s, "2")}
	tests := []struct {
		name  string
		steps []step
	}{
		{"a device without a usable serial goes by its port", []step{
			{"none", []*device.Hardware{stick("", "1"), stick("0001", "2")}, map[string]string{"1": port("1"), "2": port("2")}},
		}},
		{"a device keeps its serial in another port", []step{
			{"first", alone("1"), map[string]string{"1": s}},
			{"moved", alone("2"), map[string]string{"2": s}},
			{"pulled", nil, map[string]string{}},
			{"moved while away", alone("1.4"), map[string]string{"1.4": s}},
		}},
		{"no ID changes when a twin arrives, leaves and returns, and over boots", []step{
			{"alone", alone("2"), map[string]string{"2": s}},
			{"twin in a lower port", both, map[string]string{"1": port("1"), "2": s}},
			{"twin gone", alone("2"), map[string]string{"2": s}},
			{"twin back", both, map[string]string{"1": port("1"), "2": s}},
			{"boot, nothing found yet", nil, map[string]string{}},
			{"both found", both, map[string]string{"1": port("1"), "2": s}},
			{"boot, twin only", alone("1"), map[string]string{"1": port("1")}},
			{"both found again", both, map[string]string{"1": port("1"), "2": s}},
			{"owner gone for good", alone("1"), map[string]string{"1": port("1")}},
		}},
		{"of two that come at once the lower port has the serial", []step{
			{"both", []*device.Hardware{stick(s, "10"), stick(s, "9")}, map[string]string{"9": s, "10": port("10")}},
			{"only the other", alone("10"), map[string]string{"10": port("10")}},
		}},
		{"a contested serial does not move", []step{
			{"both", both, map[string]string{"1": s, "2": port("2")}},
			{"a third port", alone("3"), map[string]string{"3": port("3")}},
			{"owner back beside it", []*device.Hardware{stick(s, "1"), stick(s, "3")}, map[string]string{"1": s, "3": port("3")}},
		}},
		{"two appear elsewhere while the owner is absent", []step{
			{"alone", alone("1"), map[string]string{"1": s}},
			{"two others", []*device.Hardware{stick(s, "2"), stick(s, "3")}, map[string]string{"2": port("2"), "3": port("3")}},
			{"owner back", alone("1"), map[string]string{"1": s}},
		}},
		{"another device takes the port and the serial's owner moves", []step{
			{"alone", alone("1"), map[string]string{"1": s}},
			{"swapped", []*device.Hardware{stick("D4E5F6", "1"), stick(s, "2")}, map[string]string{"1": "D4E5F6", "2": s}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var d Decisions
			for _, st := range tt.steps {
				equal(t, st.name, st.want, ids(t, &d, st.present...))
			}
		})
	}
}

func TestIdentifyRemembersNoBusNumbers(t *testing.T) {
	t.Parallel()
	lost := stick("A1B2C3", "1")
	lost.USB.Controller = ""
	var d Decisions
	if got := ids(t, &d, lost); got["1"] != "A1B2C3" {
		t.Errorf("a device whose place is unknown is %q", got["1"])
	}
	if len(d.Serials) != 0 {
		t.Errorf("remembered %+v", d.Serials)
	}
	if got := ids(t, &d, lost, stick("A1B2C3", "2")); got["2"] != "A1B2C3" {
		t.Errorf("a device whose place is known is %q beside one whose place is not", got["2"])
	}
	if text := fmt.Sprint(d.Serials); strings.Contains(text, "1-") || strings.Contains(text, "usb1") {
		t.Errorf("remembered %s", text)
	}
}

func TestIdentifyKeepsThePlaceOfAnOwnerWithoutOne(t *testing.T) {
	t.Parallel()
	lost := stick("A1B2C3", "2")
	lost.USB.Controller = ""
	var d Decisions
	ids(t, &d, stick("A1B2C3", "2"))
	if got := ids(t, &d, lost); got["2"] != "A1B2C3" {
		t.Errorf("it is %q while its place is unknown", got["2"])
	}
	if got := ids(t, &d, stick("A1B2C3", "1"), stick("A1B2C3", "2")); got["2"] != "A1B2C3" {
		t.Errorf("it is %q beside a newcomer", got["2"])
	}
}

func TestIdentifyForgetsTheLongestAbsent(t *testing.T) {
	t.Parallel()
	var d Decisions
	serial := func(i int) string { return fmt.Sprintf("X%04dY", i) }
	for i := range maxAbsent + 10 {
		_, d = Identify(&device.Snapshot{Hardware: []*device.Hardware{stick(serial(i), "1")}}, d)
	}
	ids(t, &d)
	if len(d.Serials) != maxAbsent {
		t.Fatalf("%d serials are remembered, want %d", len(d.Serials), maxAbsent)
	}
	if first := d.Serials[0].ID; !strings.HasSuffix(first, serial(maxAbsent+9)) {
		t.Errorf("the last one seen is not first, but %q", first)
	}
	for _, s := range d.Serials {
		if strings.HasSuffix(s.ID, serial(9)) {
			t.Errorf("%q is still remembered", s.ID)
		}
	}
}

// A serial that a version before accepted, and that counts as a placeholder now, stays.
func TestAcceptedSerialStays(t *testing.T) {
	t.Parallel()
	h := &device.Hardware{Bus: device.USBBus, Path: "devices/usb1/1-1", Name: "1-1", USB: &device.USB{
		Vendor: "046b", Product: "ff20", Serial: "AAAABBBBCCCC1", Controller: "0000:00:14.0", Chain: "1", Speed: "480",
	}}
	snap := &device.Snapshot{Hardware: []*device.Hardware{h}}
	if forms, next := Identify(snap, Decisions{}); forms.Of(h) != device.PortForm || len(next.Serials) > 0 {
		t.Errorf("form %s, decisions %+v", forms.Of(h), next)
	}
	prev := Decisions{Serials: []Serial{{ID: "usb:046b:ff20:AAAABBBBCCCC1", Place: "0000:00:14.0:1"}}}
	if forms, next := Identify(snap, prev); forms.Of(h) != device.SerialForm || len(next.Serials) != 1 {
		t.Errorf("form %s, decisions %+v", forms.Of(h), next)
	}
}
