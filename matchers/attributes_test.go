package matchers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/matchers"
)

// Attributes are for claims, only with DRA: those of the hardware, and the configured ones.
func TestAttributes(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	for _, tc := range []struct {
		match string
		want  map[string]string
	}{
		{`match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }`, map[string]string{
			"vendor": "0403", "product": "6001", "serial": "A10K5XYZ", "port": "0000:00:14.0:2.1", "driver": "ftdi_sio",
			"resource.kubernetes.io/pcieRoot": "pci0000:00", "kernel": "x-ttyUSB0",
		}},
		{`match = { pci = { driver = "i915" }, glob = "/dev/dri/card*" }`, map[string]string{
			"vendor": "8086", "product": "3e92", "driver": "i915", "resource.kubernetes.io/pciBusID": "0000:00:02.0",
			"resource.kubernetes.io/pcieRoot": "pci0000:00", "kernel": "x-card0",
		}},
		{`match.glob = "/dev/fuse"`, map[string]string{"kernel": "x-fuse"}},
	} {
		cfg := parse(t, "[[resource]]\nname = \"x\"\napi = \"dra\"\nattributes.kernel = \"x-${kernel}\"\n"+tc.match)
		o := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}, NodeName: "worker-1"}).Resources[0].Offers[0]
		if diff := cmp.Diff(tc.want, o.Attributes); diff != "" || !o.CDI || o.Problem != "" {
			t.Errorf("%s: cdi %v, problem %q, %s", tc.match, o.CDI, o.Problem, diff)
		}
	}
	cfg := parse(t, "[[resource]]\nname = \"x\"\nmatch.glob = \"/dev/fuse\"\nattributes.a = \"b\"")
	if o := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}}).Resources[0].Offers[0]; o.Attributes != nil {
		t.Errorf("a device plugin's device has attributes: %v", o.Attributes)
	}
	cfg = parse(t, "[[resource]]\nname = \"x\"\napi = \"dra\"\nmatch.glob = \"/dev/fuse\"\nattributes.a = \"${usb.serial}\"\ncontainer.annotations.\"example.com/a\" = \"b\"")
	result := matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}})
	if p := result.Resources[0].Offers[0].Problem; !strings.HasPrefix(p, "attributes.a: ${usb.serial} has no value") {
		t.Errorf("an attribute without a value: %q", p)
	}
	found := false
	for _, n := range result.Notes {
		found = found || strings.Contains(n.Text, "left out are example.com/a")
	}
	if !found {
		t.Errorf("no note about annotations: %v", result.Notes)
	}
}
