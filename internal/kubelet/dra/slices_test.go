package dra

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file that the end-to-end tests and those of the chart hold
// against the API of Kubernetes.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// The slice has every field that is ever written.
func TestSliceIsGolden(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 10, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	n := newNodeSlices(nil, "node-1")
	n.uid, n.generation = "11111111-2222-3333-4444-555555555555", 7
	list := []Device{
		{
			Resource: "example.com/serial", ID: "usb:10c4:ea60:A1B2C3", Slots: 1, NUMA: []int{1},
			Attributes: map[string]device.Typed{
				"serial": {Text: "A1B2C3"}, "vendor": {Text: "10c4"}, "empty": {}, "resource.kubernetes.io/pciBusID": {Text: "0000:00:14.0"},
				"speed": {Type: device.IntType, Text: "-9223372036854775808"}, "removable": {Type: device.BoolType, Text: "false"},
				"firmware": {Type: device.VersionType, Text: "2.0.0-rc.1"},
			},
		},
		{Resource: "example.com/fuse", ID: "fuse", Slots: 1000, Capacity: map[string]device.Capacity{
			"memory":    {Value: "16Gi"},
			"bandwidth": {Value: "10G", Default: "1G"},
		}},
		{Resource: "example.com/fuse", ID: "single", Slots: 1, Capacity: map[string]device.Capacity{
			"ports": {Value: "8", Default: "1"},
		}},
		{Resource: "example.com/serial", ID: "settling", Slots: 1, State: Settling, Since: since, NUMA: []int{0, 1}},
		{Resource: "example.com/serial", ID: "unhealthy", Slots: 1, State: Unhealthy, Since: since},
		{Resource: "example.com/serial", ID: "gone", Slots: 1, State: Gone, Since: since, EvictAfter: time.Minute},
		{Resource: "example.com/serial", ID: "evicted", Slots: 1, State: Gone, Since: since, EvictAfter: time.Second},
	}
	specs, next := n.specs(sorted(list), nil, since.Add(time.Second))
	if want := since.Add(time.Minute); !next.Equal(want) {
		t.Errorf("the next change is at %v, want %v", next, want)
	}
	text, err := json.MarshalIndent(n.object(0, specs[0]), "", "  ")
	must(t, err)
	golden(t, "slice.json", append(text, '\n'))
	var back slice
	must(t, json.Unmarshal(text, &back))
	if back.Spec.sum() != specs[0].sum() {
		t.Error("a slice that was read differs from the one that was written")
	}
}

// The API server refuses a whole slice for one value that is too long: JSON makes three
// bytes of one that is not UTF-8.
func TestValuesFit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("\xff", device.MaxAttribute), "a" + strings.Repeat("ü", 40), strings.Repeat("x", device.MaxAttribute)} {
		d := Device{ID: "a", Attributes: map[string]device.Typed{"serial": {Text: text}}}
		got := *d.attributes()["serial"].String
		if len(got) > device.MaxAttribute || !utf8.ValidString(got) || len(text) <= device.MaxAttribute && utf8.ValidString(text) && got != text {
			t.Errorf("%q: value %q", text, got)
		}
	}
}

func TestClassesAreGolden(t *testing.T) {
	t.Parallel()
	var all []string
	for _, resource := range []string{"example.com/zigbee", "example.com/Zig_bee", "a.example.com/v1.5", "example.com/" + strings.Repeat("A.", 25) + "B"} {
		all = append(all, device.ClassManifest(resource))
	}
	golden(t, "classes.yaml", []byte(strings.Join(all, "---\n")))
}

func TestClassNamesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, resource := range []string{
		"a.b/c", "b/c.a", "b/c-a", "b/C.A", "b/C-a", "a.b/C", "example.com/" + strings.Repeat("a", 63), "example.com/" + strings.Repeat("A", 63),
	} {
		name := device.ClassName(resource)
		for _, l := range strings.Split(name, ".") {
			if len(l) == 0 || len(l) > 63 || strings.Trim(l, "-") != l {
				t.Errorf("%s: class %s", resource, name)
			}
		}
		if other := seen[name]; other != "" {
			t.Errorf("%s and %s are both %s", resource, other, name)
		}
		seen[name] = resource
	}
}

// The metadata have every field that is ever written.
func TestMetadataIsGolden(t *testing.T) {
	t.Parallel()
	d := New(Options{Node: "node-1", Metadata: filepath.Join(t.TempDir(), "new")}).claims
	serial := func(id string) device.Ref { return device.Ref{Resource: "example.com/serial", ID: id} }
	f := &filled{
		claim: cdi.Claim{Namespace: "lab", Name: "pod-sticks-x7", UID: "uid-a", PodClaim: "sticks", Requests: []cdi.Request{
			{Name: "stick/large", Devices: []device.Ref{serial("usb:10c4:ea60:A1B2C3"), serial("usb:10c4:ea60:B2")}},
		}},
		held: map[string]*Device{
			"usb:10c4:ea60:A1B2C3": {
				Resource: "example.com/serial", ID: "usb:10c4:ea60:A1B2C3", NUMA: []int{1},
				Attributes: map[string]device.Typed{"serial": {Text: "A1B2C3"}, "empty": {}, "resource.kubernetes.io/pciBusID": {Text: "0000:00:14.0"}, "removable": {Type: device.BoolType, Text: "true"}},
			},
			"usb:10c4:ea60:B2": {Resource: "example.com/serial", ID: "usb:10c4:ea60:B2", Attributes: map[string]device.Typed{}},
		},
	}
	must(t, d.writeMetadata(f))
	files, err := os.ReadDir(d.Metadata)
	if err != nil || len(files) != 1 {
		t.Fatalf("files: %v, %v", files, err)
	}
	text, err := os.ReadFile(filepath.Join(d.Metadata, files[0].Name()))
	must(t, err)
	golden(t, "metadata.json", text)
}
