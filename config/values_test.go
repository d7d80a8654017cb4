package config

import (
	"testing"

	"github.com/generic-dp/generic-dp/pattern"
)

// valuesOf reads a valid value of a kind.
func valuesOf(t *testing.T, k kind, raw any) pattern.Values {
	t.Helper()
	r := new(reader)
	v := value{r: r, source: &source{keys: &node{}}, raw: raw}.values(k)
	if len(r.reports) > 0 {
		t.Fatalf("values(%v): %v", raw, r.reports)
	}
	return v
}

func kindOf(t *testing.T, name string) kind {
	t.Helper()
	for _, a := range attributes {
		if a.Name() == name {
			return a.kind
		}
	}
	t.Fatalf("no attribute %q", name)
	return kind{}
}

func TestValuesMatch(t *testing.T) {
	t.Parallel()
	list := func(s ...string) []any {
		out := make([]any, len(s))
		for i := range s {
			out[i] = s[i]
		}
		return out
	}
	tests := []struct {
		key string
		raw any
		yes [][]string
		no  [][]string
	}{
		{"usb.serial", "A1*", [][]string{{"A1"}, {"A1B/2"}, {" A1 "}}, [][]string{{"a1"}, {"XA1"}, {}, {""}}},
		{"usb.serial", " A1 ", [][]string{{"A1"}}, [][]string{{"A"}}},
		{"usb.serial", list("A*", "B*", "! AB*"), [][]string{{"A"}, {"B1"}}, [][]string{{"AB1"}, {"C"}, {}}},

		{"usb.interface_class", "0e", [][]string{{"02", "0e"}, {"0E"}}, [][]string{{"02", "03"}, {}}},
		{"usb.interface_class", "!03", [][]string{{"02", "0e"}, {}}, [][]string{{"02", "03"}}},
		{"usb.interface_class", list("0e", "!03"), [][]string{{"0e"}}, [][]string{{"0e", "03"}, {"ff"}}},

		{"usb.id", "10C4:0xEA60", [][]string{{"10c4:ea60"}}, [][]string{{"10c4:ea61"}, {}}},
		{"usb.id", "{10c4:ea60,0403:60*}", [][]string{{"10c4:ea60"}, {"0403:6015"}}, [][]string{{"10c4:6015"}}},
		{"usb.id", "1[!0-9]??:*", [][]string{{"1a86:7523"}}, [][]string{{"10c4:ea60"}}},
		{"pci.vendor", "0x10DE", [][]string{{"10de"}, {"0x10de"}}, [][]string{{"10df"}}},
		{"pci.vendor", "{0x10de,0x1002}", [][]string{{"10de"}, {"1002"}}, [][]string{{"8086"}}},
		{"pci.device", "10D?", [][]string{{"10de"}, {"10d3"}}, [][]string{{"10ee"}}},
		{"pci.device", "!10d?", [][]string{{"10ee"}, {}}, [][]string{{"10de"}}},
		{"pci.class", "03", [][]string{{"030000"}, {"0x030200"}}, [][]string{{"000300"}, {"040300"}}},
		{"pci.class", list("03", "!0302"), [][]string{{"030000"}}, [][]string{{"030200"}}},
		{"pci.class", "0[23]??00", [][]string{{"030000"}, {"028000"}}, [][]string{{"030001"}, {"040000"}}},
		{"pci.address", "0000:3B:00.*", [][]string{{"0000:3b:00.0"}}, [][]string{{"0000:3c:00.0"}}},
		{"pci.address", "10000:01:00.0", [][]string{{"10000:01:00.0"}}, [][]string{{"0000:01:00.0"}}},
		{"pci.sriov", list("pf", "none"), [][]string{{"pf"}, {"none"}}, [][]string{{"vf"}}},
		{"pci.sriov", "!vf", [][]string{{"pf"}, {"none"}}, [][]string{{"vf"}}},

		{"usb.interface", int64(0), [][]string{{"0"}, {"00"}, {"1", "0"}}, [][]string{{"1"}, {"10"}, {}}},
		{"usb.interface", []any{int64(0), "02"}, [][]string{{"0"}, {"2"}}, [][]string{{"1"}}},
		{"pci.iommu_group", "1?", [][]string{{"12"}}, [][]string{{"1"}, {"112"}}},
		{"pci.vf", "0, 2-7", [][]string{{"0"}, {"2"}, {"7"}}, [][]string{{"1"}, {"8"}, {}, {"x"}}},
		{"pci.vf", "!0,2-7", [][]string{{"1"}, {"8"}, {}}, [][]string{{"0"}, {"5"}}},
		{"pci.pf", "ens1f?", [][]string{{"0000:3b:00.0", "ens1f0"}}, [][]string{{"0000:3b:00.0"}}},
	}
	for _, tt := range tests {
		v := valuesOf(t, kindOf(t, tt.key), tt.raw)
		if v.Empty() {
			t.Errorf("%s = %v: Empty() = true", tt.key, tt.raw)
		}
		for _, have := range tt.yes {
			if !v.Match(have...) {
				t.Errorf("%s = %q: Match(%q) = false, want true", tt.key, tt.raw, have)
			}
		}
		for _, have := range tt.no {
			if v.Match(have...) {
				t.Errorf("%s = %q: Match(%q) = true, want false", tt.key, tt.raw, have)
			}
		}
	}
}

// A node is below /dev; a mount is anywhere.
func TestGlobKinds(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][2]bool{
		"/dev/ttyUSB*":  {true, true},
		"/opt/*/lib.so": {false, true},
		"":              {false, false},
		"opt/*":         {false, false},
		"/dev/[":        {false, false},
		"!/dev/*":       {false, false},
		"/dev/../x":     {false, false},
		`/dev/\../x`:    {false, false},
		"/dev/{a,../b}": {false, false},
		"/dev/":         {false, false},
	} {
		for i, k := range []kind{nodeGlob, mountGlob} {
			r := new(reader)
			value{r: r, source: &source{keys: &node{}}, raw: s}.glob(k)
			if (len(r.reports) == 0) != want[i] {
				t.Errorf("%q below /dev: %v, %v", s, i == 0, r.reports)
			}
		}
	}
}
