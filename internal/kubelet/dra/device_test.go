package dra_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func TestDeviceNameIsReadable(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"0000:3b:00.0":                        "0000-3b-00--0",
		"usb:10c4:ea60:a1":                    "usb-10c4-ea60-a1",
		"usb:10c4:ea60:port:0000:00:14.0:1.2": "usb-10c4-ea60-port-0000-00-14--0-1--2",
		"fuse":                                "fuse",
		"usb:10c4:ea60:A1B2C3":                "usb-10c4-ea60-a1b2c3-x",
		"all:example.com:cameras":             "all-example--com-cameras",
	} {
		name := dra.DeviceName(id)
		if name != want && !(strings.HasSuffix(want, "-x") && strings.HasPrefix(name, want)) {
			t.Errorf("DeviceName(%q) = %q, want %q", id, name, want)
		}
	}
}

func TestDeviceNameIsInjective(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 57)
	ids := []string{
		"usb:1:a", "usb:1:A", "usb-1-a", "usb.1.a", "usb:1.a", "usb_1_a", "usb--1--a", "Usb:1:a", "USB:1:A",
		"a:b", "a.b", "a-b", "a_b", "a--b", "a..b", "a.-b", "a-.b", "a:-b",
		long, long[1:] + "A", long[1:] + "B", strings.Repeat("a", 70), strings.Repeat("a", 71),
		strings.Repeat("a.", 28) + "a", strings.Repeat("a:", 28) + "a", strings.Repeat("a.", 35) + "a",
		"", "-", ":", "A", "Ä", "ä",
	}
	// No ID is its own hashed name.
	for _, id := range ids {
		name := dra.DeviceName(id)
		ids = append(ids, name, strings.ReplaceAll(name, "-", ":"), strings.Replace(name, "-x", ":x", 1), strings.Replace(name, "-x", ".x", 1))
	}
	seen := map[string]string{}
	for _, id := range ids {
		name := dra.DeviceName(id)
		if !label.MatchString(name) {
			t.Errorf("DeviceName(%q) = %q is no DNS label", id, name)
		}
		if other, ok := seen[name]; ok && other != id {
			t.Errorf("%q and %q are both %q", id, other, name)
		}
		seen[name] = id
	}
}

func FuzzDeviceName(f *testing.F) {
	f.Add("a:b", "a-b")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := dra.DeviceName(a), dra.DeviceName(b)
		if !label.MatchString(x) || a != b && x == y {
			t.Errorf("%q is %q, %q is %q", a, x, b, y)
		}
	})
}
