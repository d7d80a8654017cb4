package device_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

func TestParseTyped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		typ        device.AttributeType
		text, want string // want is empty for an error
	}{
		{device.StringType, " as is ", " as is "},
		{device.IntType, " 40\n", "40"},
		{device.IntType, "-1", "-1"},
		{device.IntType, "007", "7"},
		{device.IntType, "0x1f", "31"},
		{device.IntType, "1f", ""},
		{device.IntType, "0x", ""},
		{device.IntType, "", ""},
		{device.IntType, "2.5", ""},
		{device.IntType, "9223372036854775807", "9223372036854775807"},
		{device.IntType, "9223372036854775808", ""},
		{device.BoolType, "Y\n", "true"},
		{device.BoolType, "0", "false"},
		{device.BoolType, "enabled", "true"},
		{device.BoolType, "2", ""},
		{device.BoolType, "", ""},
		{device.VersionType, " 2.00", "2.0.0"},
		{device.VersionType, "v1.2.3", "1.2.3"},
		{device.VersionType, "5.06.0-rc.1+build.5", "5.6.0-rc.1+build.5"},
		{device.VersionType, "3", "3.0.0"},
		{device.VersionType, "1.2.3.4", ""},
		{device.VersionType, "1.2.3-01", ""},
		{device.VersionType, "1.2.3-", ""},
		{device.VersionType, "a", ""},
		{device.VersionType, "1.2.3+" + strings.Repeat("b", 58), "1.2.3+" + strings.Repeat("b", 58)},
		{device.VersionType, "1.2.3+" + strings.Repeat("b", 59), ""},
	} {
		got, err := device.ParseTyped(tc.typ, tc.text)
		isError := tc.want == ""
		if (err != nil) != isError || got.Text != tc.want {
			t.Errorf("%q %q = %q, %v; want %q", tc.typ, tc.text, got.Text, err, tc.want)
		}
		if err == nil && got.Type != tc.typ {
			t.Errorf("%q %q has the type %q", tc.typ, tc.text, got.Type)
		}
	}
}
