package device_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

func TestQuantity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, canonical, number string }{
		{"0", "0", "0"},
		{"4", "4", "4"},
		{"1000", "1k", "1000"},
		{"10000M", "10G", "10000000000"},
		{"1500M", "1500M", "1500000000"},
		{"1.5G", "1500M", "1500000000"},
		{"1e3", "1k", "1000"},
		{"2E", "2E", "2000000000000000000"},
		{"1E3", "1k", "1000"},
		{"1024Mi", "1Gi", "1073741824"},
		{"1536Mi", "1536Mi", "1610612736"},
		{"0.5Ki", "512", "512"},
		{"0Gi", "0", "0"},
		{"5e-1", "0", "0.5"},
		{"100m", "0", "0.1"},
		{"8589934592", "8589934592", "8589934592"},
	} {
		q, err := device.ParseQuantity(tc.text)
		if err != nil {
			t.Errorf("%q: %v", tc.text, err)
			continue
		}
		if q.String() != tc.canonical || q.Number() != tc.number {
			t.Errorf("%q = %s, %s; want %s, %s", tc.text, q, q.Number(), tc.canonical, tc.number)
		}
	}
	for _, text := range []string{
		"", "G", "-1", "+1", "1 G", "1g", "1KiB", ".", "1.2.3", "1e", "e3", "1e999", "1e99999999999", "1/3", "0x10", "1_000",
		strings.Repeat("1", 41), "1e1.5",
	} {
		if q, err := device.ParseQuantity(text); err == nil {
			t.Errorf("%q = %s: want an error", text, q)
		}
	}
}

func TestNewCapacity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, value, byDefault string
		want                   string // "FIELD: ERROR", empty if it is valid
	}{
		{"only a value", "10G", "", ""},
		{"default", "10G", "1G", ""},
		{"no quantity", "fast", "", `value: "fast" is not a quantity`},
		{"fraction", "0.5", "", `value: "0.5" is not an integer of 64 bits`},
		{"too large", "10E", "", `value: "10E" is not an integer of 64 bits`},
		{"default above the value", "1G", "2G", "default: 2G is more than value: 1G"},
	} {
		_, field, err := device.NewCapacity(tc.value, tc.byDefault)
		got := ""
		if err != nil {
			got = field + ": " + err.Error()
		}
		if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
