package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The domain ends before the first variable.
func TestNames(t *testing.T) {
	t.Parallel()
	own := parse(t, "[[resource]]\nname = 'vendor.example/${attr:a/b}'\nmatch.usb = {}\n").Resources[0]
	if diff := cmp.Diff(device.Text{vars("attr:a/b")}, own.NameText); diff != "" || own.Name != "vendor.example/${attr:a/b}" {
		t.Errorf("a domain of its own: %q (-want +got):\n%s", own.Name, diff)
	}
	domain := parse(t, "domain = 'example.com'\n[[resource]]\nname = '${attr:a/b}'\nmatch.usb = {}\n").Resources[0]
	if domain.Name != "example.com/${attr:a/b}" {
		t.Errorf("the domain of all: %q", domain.Name)
	}
}

// The kind of each attribute decides how its values are compared.
func TestAttributeKinds(t *testing.T) {
	t.Parallel()
	hardware := parse(t, `
domain = "example.com"
[[resource]]
name = "x"
match.usb = { serial = " A1*", id = "10C4:0xEA60", interface_class = ["0e", "!03"], interface = [0, "02"] }
match.pci = { id = "0x10DE:*", class = "03", address = "0000:3B:00.*", slot = "10000:01:00", sriov = "!vf", vf = "0, 2-7", pf = "ens1f?" }
`).Resources[0].Match[0].Hardware
	for _, tt := range []struct {
		table, key string
		yes, no    []string
	}{
		{"usb", "serial", []string{"A1/2"}, []string{"a1"}},
		{"usb", "id", []string{"10c4:ea60"}, []string{"10c4:ea61"}},
		{"usb", "interface_class", []string{"0E", "02"}, []string{"0e", "03"}},
		{"usb", "interface", []string{"1", "00"}, []string{"1", "3"}},
		{"pci", "id", []string{"10de:2204"}, []string{"10df:2204"}},
		{"pci", "class", []string{"0x030200"}, []string{"000300"}},
		{"pci", "address", []string{"0000:3b:00.1"}, []string{"0000:3c:00.0"}},
		{"pci", "slot", []string{"10000:01:00"}, []string{"0000:01:00"}},
		{"pci", "sriov", []string{"pf"}, []string{"vf"}},
		{"pci", "vf", []string{"5"}, []string{"1"}},
		{"pci", "pf", []string{"0000:3b:00.0", "ens1f0"}, []string{"0000:3b:00.0"}},
	} {
		if v := hardware[tt.table][tt.key]; !v.Match(tt.yes...) || v.Match(tt.no...) {
			t.Errorf("%s.%s: Match(%q) = %v, Match(%q) = %v", tt.table, tt.key, tt.yes, v.Match(tt.yes...), tt.no, v.Match(tt.no...))
		}
	}
}
