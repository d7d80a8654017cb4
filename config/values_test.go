package config

import (
	"testing"

	"github.com/generic-dp/generic-dp/pattern"
)

// valuesOf reads a value of a kind and fails where it is refused.
func valuesOf(t *testing.T, k kind, raw any) pattern.Values {
	t.Helper()
	w := newWalk()
	v := value{w: w, place: "test", raw: raw}.values(k)
	if len(w.reports) > 0 {
		t.Fatalf("values(%v): %v", raw, w.reports)
	}
	return v
}

func kindOf(t *testing.T, keys table[conditions], name string) func(raw any) pattern.Values {
	t.Helper()
	for _, k := range keys.keys {
		if k.name == name {
			return func(raw any) pattern.Values {
				t.Helper()
				c := make(conditions)
				w := newWalk()
				k.read(value{w: w, place: name, raw: raw}, &c)
				if len(w.reports) > 0 {
					t.Fatal(w.reports)
				}
				return c[name]
			}
		}
	}
	t.Fatalf("no key %q", name)
	return nil
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
		table table[conditions]
		key   string
		raw   any
		yes   [][]string
		no    [][]string
	}{
		{usbTable, "serial", "A1*", [][]string{{"A1"}, {"A1B/2"}, {" A1 "}}, [][]string{{"a1"}, {"XA1"}, {}, {""}}},
		{usbTable, "serial", " A1 ", [][]string{{"A1"}}, [][]string{{"A"}}},
		{usbTable, "serial", list("A*", "B*", "! AB*"), [][]string{{"A"}, {"B1"}}, [][]string{{"AB1"}, {"C"}, {}}},

		{usbTable, "interface_class", "0e", [][]string{{"02", "0e"}, {"0E"}}, [][]string{{"02", "03"}, {}}},
		{usbTable, "interface_class", "!03", [][]string{{"02", "0e"}, {}}, [][]string{{"02", "03"}}},
		{usbTable, "interface_class", list("0e", "!03"), [][]string{{"0e"}}, [][]string{{"0e", "03"}, {"ff"}}},

		{usbTable, "id", "10C4:0xEA60", [][]string{{"10c4:ea60"}}, [][]string{{"10c4:ea61"}, {}}},
		{usbTable, "id", "{10c4:ea60,0403:60*}", [][]string{{"10c4:ea60"}, {"0403:6015"}}, [][]string{{"10c4:6015"}}},
		{usbTable, "id", "1[!0-9]??:*", [][]string{{"1a86:7523"}}, [][]string{{"10c4:ea60"}}},
		{pciTable, "vendor", "0x10DE", [][]string{{"10de"}, {"0x10de"}}, [][]string{{"10df"}}},
		{pciTable, "vendor", "{0x10de,0x1002}", [][]string{{"10de"}, {"1002"}}, [][]string{{"8086"}}},
		{pciTable, "device", "10D?", [][]string{{"10de"}, {"10d3"}}, [][]string{{"10ee"}}},
		{pciTable, "device", "!10d?", [][]string{{"10ee"}, {}}, [][]string{{"10de"}}},
		{pciTable, "class", "03", [][]string{{"030000"}, {"0x030200"}}, [][]string{{"000300"}, {"040300"}}},
		{pciTable, "class", list("03", "!0302"), [][]string{{"030000"}}, [][]string{{"030200"}}},
		{pciTable, "class", "0[23]??00", [][]string{{"030000"}, {"028000"}}, [][]string{{"030001"}, {"040000"}}},
		{pciTable, "address", "0000:3B:00.*", [][]string{{"0000:3b:00.0"}}, [][]string{{"0000:3c:00.0"}}},
		{pciTable, "address", "10000:01:00.0", [][]string{{"10000:01:00.0"}}, [][]string{{"0000:01:00.0"}}},
		{pciTable, "sriov", list("pf", "none"), [][]string{{"pf"}, {"none"}}, [][]string{{"vf"}}},
		{pciTable, "sriov", "!vf", [][]string{{"pf"}, {"none"}}, [][]string{{"vf"}}},

		{usbTable, "interface", int64(0), [][]string{{"0"}, {"00"}, {"1", "0"}}, [][]string{{"1"}, {"10"}, {}}},
		{usbTable, "interface", []any{int64(0), "02"}, [][]string{{"0"}, {"2"}}, [][]string{{"1"}}},
		{pciTable, "iommu_group", "1?", [][]string{{"12"}}, [][]string{{"1"}, {"112"}}},
		{pciTable, "vf", "0, 2-7", [][]string{{"0"}, {"2"}, {"7"}}, [][]string{{"1"}, {"8"}, {}, {"x"}}},
		{pciTable, "vf", "!0,2-7", [][]string{{"1"}, {"8"}, {}}, [][]string{{"0"}, {"5"}}},
		{pciTable, "pf", "ens1f?", [][]string{{"0000:3b:00.0", "ens1f0"}}, [][]string{{"0000:3b:00.0"}}},
	}
	for _, tt := range tests {
		v := kindOf(t, tt.table, tt.key)(tt.raw)
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
		for i, k := range []kind{nodeGlob, pathGlob} {
			if _, rule, _ := k.parsePositive(s); (rule == "") != want[i] {
				t.Errorf("%q below /dev: %v, %q", s, i == 0, rule)
			}
		}
	}
}
