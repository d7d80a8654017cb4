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

func TestSumsOfQuantitiesAreExact(t *testing.T) {
	t.Parallel()
	third, err := device.ParseQuantity("0.1")
	if err != nil {
		t.Fatal(err)
	}
	sum := third
	for range 9 {
		sum = sum.Plus(third)
	}
	one, _ := device.ParseQuantity("1")
	if sum.Cmp(one) != 0 || third.Number() != "0.1" {
		t.Errorf("ten times %s is %s", third.Number(), sum.Number())
	}
}

func TestNewCapacity(t *testing.T) {
	t.Parallel()
	type policy = device.CapacityPolicy
	for _, tc := range []struct {
		name, value string
		policy      *policy
		want        string // "FIELD: ERROR", empty if it is valid
	}{
		{"only a value", "10G", nil, ""},
		{"default", "10G", &policy{Default: "1G"}, ""},
		{"range", "10G", &policy{Default: "1G", Min: "500M", Max: "10G", Step: "500M"}, ""},
		{"values", "8", &policy{Default: "2", Values: []string{"1", "2", "8"}}, ""},
		{"no quantity", "fast", nil, `value: "fast" is not a quantity`},
		{"fraction", "0.5", nil, `value: "0.5" is not an integer of 64 bits`},
		{"too large", "10E", nil, `value: "10E" is not an integer of 64 bits`},
		{"default above the value", "1G", &policy{Default: "2G"}, "default: 2G is more than value: 1G"},
		{"default below min", "1G", &policy{Default: "1M", Min: "2M"}, "min: 2M is more than default: 1M"},
		{"max above the value", "1G", &policy{Default: "1M", Min: "1M", Max: "2G"}, "max: 2G is more than value: 1G"},
		{"no step", "1G", &policy{Default: "1M", Min: "1M", Step: "0"}, "step: must be greater than 0"},
		{"one step too many", "3", &policy{Default: "2", Min: "2", Step: "2"}, "step: min and one step are more than the capacity of 3"},
		{"default between steps", "10", &policy{Default: "2", Min: "1", Step: "2"}, "default: 2 is not min 1 and a multiple of step 2"},
		{"max between steps", "10", &policy{Default: "1", Min: "1", Max: "4", Step: "2"}, "max: 4 is not min 1 and a multiple of step 2"},
		{"values descend", "8", &policy{Default: "2", Values: []string{"2", "1"}}, "values: 1 follows 2: want ascending values"},
		{"values repeat", "8", &policy{Default: "2", Values: []string{"2", "2"}}, "values: 2 follows 2: want ascending values"},
		{"value above the capacity", "8", &policy{Default: "2", Values: []string{"2", "9"}}, "values: 9 is more than the capacity of 8"},
		{"default is no value", "8", &policy{Default: "3", Values: []string{"2", "4"}}, "values: the default 3 is missing"},
	} {
		_, field, err := device.NewCapacity(tc.value, tc.policy)
		got := ""
		if err != nil {
			got = field + ": " + err.Error()
		}
		if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
