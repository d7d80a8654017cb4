package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
)

func TestParseText(t *testing.T) {
	t.Parallel()
	lit := func(s string) device.Part { return device.Part{Literal: s} }
	va := func(s string) device.Part { return device.Part{Var: s} }
	tests := []struct {
		in   string
		want device.Text
	}{
		{"", nil},
		{"/dev/zigbee", device.Text{lit("/dev/zigbee")}},
		{"${id}", device.Text{va("id")}},
		{"a${usb.serial}b${1}", device.Text{lit("a"), va("usb.serial"), lit("b"), va("1")}},
		{"$${id} costs $5 $$ $", device.Text{lit("${id} costs $5 $$ $")}},
		{"$$${id}", device.Text{lit("$"), {Var: "id"}}},
		{"a$$$${id}", device.Text{lit("a$${id}")}},
		{"$$$$${id}", device.Text{lit("$$"), {Var: "id"}}},
		{"}${id}}", device.Text{lit("}"), va("id"), lit("}")}},
		{"ä${id}€", device.Text{lit("ä"), va("id"), lit("€")}},
	}
	for _, tt := range tests {
		got, err := parseText(tt.in)
		if err != nil {
			t.Errorf("parseText(%q): %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("parseText(%q) (-want +got):\n%s", tt.in, diff)
		}
	}
	for _, bad := range []string{"${", "a${id", "${}", "${id}${", "${a${id}"} {
		if got, err := parseText(bad); err == nil || got != nil {
			t.Errorf("parseText(%q) = %v, %v, want an error", bad, got, err)
		}
	}
}

var dollars = regexp.MustCompile(`\$+\{`)

// A text or an error, never both; and a text formats as written.
func FuzzParseText(f *testing.F) {
	for _, s := range []string{"", "${id}", "$${id}${1}$", "${", "${}", "a$b${usb.serial}/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := parseText(s)
		if err != nil {
			if text != nil {
				t.Errorf("parseText(%q) = %v and %v", s, text, err)
			}
			return
		}
		want := dollars.ReplaceAllStringFunc(s, func(run string) string {
			n := len(run) - len("{")
			// Of each two dollars one is left. An odd one begins a variable.
			return strings.Repeat("$", n/2+n%2) + "{"
		})
		if got := text.String(); got != want {
			t.Errorf("parseText(%q) = %q", s, got)
		}
	})
}

// interpretedKey puts every digit of these names in place of a number.
func TestInterpretedDigits(t *testing.T) {
	t.Parallel()
	for _, i := range append(annotations, environment...) {
		for name := range strings.FieldsSeq(i.names) {
			if n := regexp.MustCompile("[0-9]+").FindString(name); n != "" && !slices.Contains(digits, n) {
				t.Errorf("%s has the number %s", name, n)
			}
		}
	}
}
