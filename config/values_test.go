package config

import (
	gopath "path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"
)

// valuesOf reads a value of a kind and fails where it is refused.
func valuesOf(t *testing.T, k kind, raw any) Values {
	t.Helper()
	w := newWalk()
	v := value{w: w, place: "test", raw: raw}.values(k)
	if len(w.reports) > 0 {
		t.Fatalf("values(%v): %v", raw, w.reports)
	}
	return v
}

func kindOf(t *testing.T, keys table[conditions], name string) func(raw any) Values {
	t.Helper()
	for _, k := range keys.keys {
		if k.name == name {
			return func(raw any) Values {
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
		{usbTable, "serial", "A?[0-9][!x]", [][]string{{"Ab0y"}, {"A/0/"}}, [][]string{{"Ab0x"}, {"A0y"}, {"Aba0y"}}},
		{usbTable, "serial", "{A,B{C,D}}1", [][]string{{"A1"}, {"BC1"}, {"BD1"}}, [][]string{{"B1"}, {"C1"}, {"{A,B{C,D}}1"}}},
		{usbTable, "serial", `\*\!a\[`, [][]string{{"*!a["}}, [][]string{{"x!a["}}},
		{usbTable, "serial", "**", [][]string{{"a"}, {"a/b"}}, [][]string{{}}},
		{usbTable, "serial", "*", [][]string{{"a"}, {"a/b"}}, [][]string{{}, {""}, {" "}}},
		{usbTable, "serial", "!*", [][]string{{}, {""}}, [][]string{{"a"}}},
		{usbTable, "serial", "!0001", [][]string{{}, {"0002"}}, [][]string{{"0001"}, {" 0001\n"}}},
		{usbTable, "serial", list("A*", "B*", "! AB*"), [][]string{{"A"}, {"B1"}}, [][]string{{"AB1"}, {"C"}, {}}},
		{usbTable, "serial", list("!A*", "!B*"), [][]string{{"C"}, {}}, [][]string{{"A"}, {"B1"}}},

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

func TestValuesZero(t *testing.T) {
	t.Parallel()
	var v Values
	if !v.Empty() || !v.Match() || !v.Match("x") || len(v.Patterns()) != 0 {
		t.Error("the zero Values is a condition")
	}
}

func TestValuesPatterns(t *testing.T) {
	t.Parallel()
	v := valuesOf(t, plain, []any{" A* ", "!{B,C}"})
	if diff := cmp.Diff([]string{"A*", "!{B,C}"}, v.Patterns()); diff != "" {
		t.Errorf("Patterns() (-want +got):\n%s", diff)
	}
	v.Patterns()[0] = "changed"
	if got := v.Patterns()[0]; got != "A*" {
		t.Errorf("Patterns() hands out its own memory: %q", got)
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	list := func(s ...any) []any { return s }
	tests := []struct {
		raw      any
		yes, no  []string
		prefixes []string
	}{
		{"/dev/fuse", []string{"/dev/fuse"}, []string{"/dev/fuse1", "/dev/fus"}, []string{"/dev/fuse"}},
		{"/dev/ttyUSB*", []string{"/dev/ttyUSB", "/dev/ttyUSB12"}, []string{"/dev/ttyUSB/0", "/dev/ttyACM0"}, []string{"/dev/ttyUSB"}},
		{"/dev/{ttyUSB,ttyACM}[0-9]", []string{"/dev/ttyUSB0", "/dev/ttyACM9"}, []string{"/dev/ttyUSB10", "/dev/ttyUSB"}, []string{"/dev/ttyACM", "/dev/ttyUSB"}},
		{"/dev/a[!b]c", []string{"/dev/axc"}, []string{"/dev/abc", "/dev/a/c"}, []string{"/dev/a"}},
		{"/dev/a?c", []string{"/dev/axc"}, []string{"/dev/a/c"}, []string{"/dev/a"}},
		{"/dev/**/video*", []string{"/dev/video0", "/dev/a/b/video1"}, []string{"/dev/a/xvideo1"}, []string{"/dev"}},
		{"/dev/snd/**", []string{"/dev/snd/a", "/dev/snd/by-path/x", "/dev/snd"}, []string{"/dev/sndx"}, []string{"/dev/snd"}},
		{"/dev/a**b", []string{"/dev/axxb"}, []string{"/dev/ax/xb"}, []string{"/dev/a"}},
		{list("/dev/ttyS*", "/dev/tty", "/dev/null", "!/dev/ttyS[12]?"), []string{"/dev/ttyS0", "/dev/tty", "/dev/null"}, []string{"/dev/ttyS10", "/dev/tty1"}, []string{"/dev/null", "/dev/tty"}},
		{"!/dev/sd*", []string{"/dev/fuse"}, []string{"/dev/sda"}, []string{"/dev/"}},
	}
	for _, tt := range tests {
		v := valuesOf(t, nodeGlob, tt.raw)
		if diff := cmp.Diff(tt.prefixes, v.Prefixes()); diff != "" {
			t.Errorf("glob %v: Prefixes() (-want +got):\n%s", tt.raw, diff)
		}
		for _, path := range tt.yes {
			if !v.Match(path) {
				t.Errorf("glob %v: Match(%q) = false, want true", tt.raw, path)
			}
			if !slices.ContainsFunc(v.Prefixes(), func(p string) bool { return strings.HasPrefix(path, p) }) {
				t.Errorf("glob %v: no prefix of %q in %q", tt.raw, path, v.Prefixes())
			}
		}
		for _, path := range tt.no {
			if v.Match(path) {
				t.Errorf("glob %v: Match(%q) = true, want false", tt.raw, path)
			}
		}
	}
}

func TestCaptures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw       any
		path      string
		want      []string
		wildcards int
	}{
		{"/dev/snd/pcmC*D*[pc]", "/dev/snd/pcmC0D3p", []string{"0", "3", "p"}, 3},
		{"/dev/video?", "/dev/video7", []string{"7"}, 1},
		{"/dev/{ttyUSB,ttyACM}*", "/dev/ttyACM12", []string{"12"}, 1},
		{"/dev/**/card*", "/dev/card0", []string{"", "0"}, 2},
		{"/dev/**/card*", "/dev/a/b/card0", []string{"a/b", "0"}, 2},
		{"/dev/snd/**", "/dev/snd/a/b", []string{"a/b"}, 1},
		{"/dev/a[!b/]*", "/dev/a.+x", []string{".", "+x"}, 2},
		{"/dev/fuse", "/dev/fuse", []string{}, 0},
		{"/dev/fuse", "/dev/kvm", nil, 0},
		{[]any{"/dev/a*b*", "/dev/c*"}, "/dev/c1", []string{"1"}, 1},
		{"/dev/{a*,b}", "/dev/b", []string{}, 0},
	}
	for _, tt := range tests {
		v := valuesOf(t, nodeGlob, tt.raw)
		if diff := cmp.Diff(tt.want, v.Captures(tt.path)); diff != "" {
			t.Errorf("glob %v: Captures(%q) (-want +got):\n%s", tt.raw, tt.path, diff)
		}
		if got := v.wildcards(); got != tt.wildcards {
			t.Errorf("glob %v: wildcards() = %d, want %d", tt.raw, got, tt.wildcards)
		}
	}
}

func TestParseGlob(t *testing.T) {
	t.Parallel()
	v, err := ParseGlob("/opt/*/lib.so")
	if err != nil || !v.Match("/opt/a/lib.so") || v.Match("/opt/a/b/lib.so") {
		t.Errorf("ParseGlob() = %v, %v", v, err)
	}
	for _, bad := range []string{"", "opt/*", "/opt/[", "!/opt/*", "/opt/../x", "/opt/"} {
		if v, err := ParseGlob(bad); err == nil || !v.Empty() {
			t.Errorf("ParseGlob(%q) = %v, %v, want an error", bad, v.Patterns(), err)
		}
	}
}

// A valid glob matches as doublestar does, but for "/" in classes, and its
// captures fit where it matches.
func FuzzGlob(f *testing.F) {
	f.Add("/dev/{tty,a{b,c}}[!0-9a]?*", "/dev/ttyx12")
	f.Add("/dev/**/v*", "/dev/a/b/v1")
	f.Add(`/dev/\[a\]\**`, "/dev/[a]*x")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		v, err := ParseGlob(pattern)
		if err != nil {
			if !v.Empty() {
				t.Error("both a value and an error")
			}
			return
		}
		if path == "" {
			return
		}
		got := v.Match(path)
		if got != (v.Captures(path) != nil) {
			t.Errorf("Match(%q) = %v, Captures = %q", path, got, v.Captures(path))
		}
		if n := len(v.Captures(path)); got && n < v.wildcards() {
			t.Errorf("%d captures of %d wildcards", n, v.wildcards())
		}
		if got && !slices.ContainsFunc(v.Prefixes(), func(p string) bool { return strings.HasPrefix(path, p) }) {
			t.Errorf("no prefix of %q in %q", path, v.Prefixes())
		}
		// Characters that are no UTF-8 are one and the same to doublestar, and
		// "/a*/**" matches "/ab" to it, but not "/a".
		if strings.Contains(pattern, "[") || strings.Contains(pattern, "**") || gopath.Clean(path) != path || path == "/" || !utf8.ValidString(path) {
			return
		}
		if want, err := doublestar.Match(strings.TrimSpace(pattern), path); err != nil || got != want {
			t.Errorf("Match(%q) of %q = %v, doublestar says %v, %v", path, pattern, got, want, err)
		}
	})
}
