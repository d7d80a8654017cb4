package pattern_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// values is the condition of patterns.
func values(t testing.TB, kind pattern.Kind, written ...string) pattern.Values {
	t.Helper()
	var all []pattern.Values
	for _, s := range written {
		p, err := pattern.Parse(kind, s)
		if err != nil {
			t.Fatalf("%q %v", s, err)
		}
		all = append(all, p)
	}
	return pattern.Join(all...)
}

func TestMatch(t *testing.T) {
	t.Parallel()
	list := func(s ...string) []string { return s }
	for _, tt := range []struct {
		kind     pattern.Kind
		patterns []string
		yes, no  [][]string
	}{
		{pattern.Text, list("A1*"), [][]string{{"A1"}, {"A1B/2"}, {" A1 "}}, [][]string{{"a1"}, {"XA1"}, {}, {""}}},
		{pattern.Text, list(" A1 "), [][]string{{"A1"}}, [][]string{{"A"}}},
		{pattern.Text, list("A?[0-9][!x]"), [][]string{{"Ab0y"}, {"A/0/"}}, [][]string{{"Ab0x"}, {"A0y"}, {"Aba0y"}}},
		{pattern.Text, list("{A,B{C,D}}1"), [][]string{{"A1"}, {"BC1"}, {"BD1"}}, [][]string{{"B1"}, {"C1"}, {"{A,B{C,D}}1"}}},
		{pattern.Text, list(`\*\!a\[`), [][]string{{"*!a["}}, [][]string{{"x!a["}}},
		{pattern.Text, list(`[\]x-][^a\-c]`), [][]string{{"]b"}, {"-b"}, {"xé"}}, [][]string{{"]a"}, {"]-"}, {"yb"}}},
		{pattern.Text, list("**"), [][]string{{"a"}, {"a/b"}}, [][]string{{}}},
		{pattern.Text, list("*"), [][]string{{"a"}, {"a/b"}}, [][]string{{}, {""}, {" "}}},
		{pattern.Text, list("!*"), [][]string{{}, {""}}, [][]string{{"a"}}},
		{pattern.Text, list("!0001"), [][]string{{}, {"0002"}}, [][]string{{"0001"}, {" 0001\n"}}},
		{pattern.Text, list("A*", "B*", "! AB*"), [][]string{{"A"}, {"B1"}}, [][]string{{"AB1"}, {"C"}, {}}},
		{pattern.Text, list("!A*", "!B*"), [][]string{{"C"}, {}}, [][]string{{"A"}, {"B1"}}},
		{pattern.Text, list("0e", "!03"), [][]string{{"0e"}}, [][]string{{"0e", "03"}, {"ff"}}},
		{pattern.Hex, list("10C4:0xEA60"), [][]string{{"10c4:ea60"}}, [][]string{{"10c4:ea61"}, {}}},
		{pattern.Hex, list("0x10DE"), [][]string{{"10de"}, {"0x10DE"}}, [][]string{{"10df"}}},
		{pattern.Hex, list("{0x10de,0x1002}"), [][]string{{"10de"}, {"1002"}}, [][]string{{"8086"}}},
		{pattern.HexPrefix, list("03", "!0302"), [][]string{{"030000"}, {"0x0301"}}, [][]string{{"030200"}, {"000300"}, {"040300"}}},
		{pattern.HexPrefix, list("0[23]??00"), [][]string{{"030000"}, {"028000"}}, [][]string{{"030001"}, {"040000"}}},
		{pattern.Number, list("0"), [][]string{{"0"}, {"00"}, {"1", "0"}}, [][]string{{"1"}, {"10"}, {}}},
		{pattern.Number, list("1?"), [][]string{{"12"}, {"012"}}, [][]string{{"1"}, {"112"}}},
		{pattern.Number, list("0, 2-7"), [][]string{{"0"}, {"2"}, {"7"}}, [][]string{{"1"}, {"8"}, {}, {"x"}}},
		{pattern.Number, list("!0,2-7"), [][]string{{"1"}, {"8"}, {}}, [][]string{{"0"}, {"5"}}},
	} {
		v := values(t, tt.kind, tt.patterns...)
		for _, have := range tt.yes {
			if !v.Match(have...) {
				t.Errorf("%q: Match(%q) = false, want true", tt.patterns, have)
			}
		}
		for _, have := range tt.no {
			if v.Match(have...) {
				t.Errorf("%q: Match(%q) = true, want false", tt.patterns, have)
			}
		}
	}
}

func TestCaptures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		patterns []string
		path     string
		want     []string
	}{
		{[]string{"/dev/snd/pcmC*D*[pc]"}, "/dev/snd/pcmC0D3p", []string{"0", "3", "p"}},
		{[]string{"/dev/video?"}, "/dev/video7", []string{"7"}},
		{[]string{"/dev/{ttyUSB,ttyACM}*"}, "/dev/ttyACM12", []string{"12"}},
		{[]string{"/dev/**/card*"}, "/dev/card0", []string{"", "0"}},
		{[]string{"/dev/**/card*"}, "/dev/a/b/card0", []string{"a/b", "0"}},
		{[]string{"/dev/snd/**"}, "/dev/snd/a/b", []string{"a/b"}},
		{[]string{"/dev/snd/**"}, "/dev/snd", []string{""}},
		{[]string{"/dev/a[!b]*"}, "/dev/a.+x", []string{".", "+x"}},
		{[]string{"/dev/*-*"}, "/dev/a-b-c", []string{"a-b", "c"}},
		{[]string{"/dev/fuse"}, "/dev/fuse", []string{}},
		{[]string{"/dev/fuse"}, "/dev/kvm", nil},
		{[]string{"/dev/a*b*", "/dev/c*"}, "/dev/c1", []string{"1"}},
		{[]string{"/dev/{a*,b}"}, "/dev/b", []string{}},
	} {
		if diff := cmp.Diff(tt.want, values(t, pattern.Path, tt.patterns...).Captures(tt.path)); diff != "" {
			t.Errorf("%q: Captures(%q) (-want +got):\n%s", tt.patterns, tt.path, diff)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	var zero pattern.Values
	if !zero.Empty() || !zero.Match() || !zero.Match("x") || len(zero.Patterns()) != 0 {
		t.Error("the zero Values is a condition")
	}
	v := values(t, pattern.Text, " A* ", "!{B,C}")
	if diff := cmp.Diff([]string{"A*", "!{B,C}"}, v.Patterns()); diff != "" || v.Empty() || !v.Negative() {
		t.Errorf("Patterns() (-want +got):\n%s", diff)
	}
	if p := v.Split()[1]; !p.Negative() || !p.Positive().Match("C") || p.Positive().Patterns()[0] != "{B,C}" {
		t.Errorf("Split()[1] = %q, %v without !", p.Patterns(), p.Positive().Patterns())
	}
	for written, want := range map[string]string{"/dev/sd": "/dev/sd", `\*`: "*", "a*": "", "{a,b}": ""} {
		if got, ok := values(t, pattern.Path, written, "!x").Literal(); got != want || ok != (want != "") {
			t.Errorf("%s: Literal() = %q, %v", written, got, ok)
		}
	}
}

func TestAlternative(t *testing.T) {
	t.Parallel()
	of := func(kind pattern.Kind, s string) pattern.Alternative {
		return values(t, kind, s).Alternatives()[0]
	}
	for written, want := range map[string]string{"/dev/**/a[x]?": "/dev/*/a**", "/dev/**": "/dev/*", `/dev/\*/..`: "/dev/*/.."} {
		if got := of(pattern.Path, written).Shape(); got != want {
			t.Errorf("%s: Shape() = %q, want %q", written, got, want)
		}
	}
	for written, want := range map[string]int{"/dev/fuse": 0, "/dev/**/a[x]?": 3, "/dev/a*b*": 2} {
		if got := of(pattern.Path, written).Wildcards(); got != want {
			t.Errorf("%s: Wildcards() = %d, want %d", written, got, want)
		}
	}
	for written, want := range map[string]bool{"10de": true, "10d": false, "10dea": false, "10d?": true, "[01]0d[a-e]": true, "1*": true, "1*dea?": false, "10dz": false, "10d[z]": false} {
		if got := of(pattern.Hex, written).Fits(4, "0123456789abcdef"); got != want {
			t.Errorf("%s: Fits() = %v, want %v", written, got, want)
		}
	}
	if a := of(pattern.HexPrefix, "030"); a.Fits(4, "03") || !a.Fits(3, "03") {
		t.Error("030 fits as if it were 030*")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const syntax = "is not a valid pattern: every [...] and {...} must be closed, and a character must follow every \\"
	const number = `is not a number: want a number such as "2", or numbers and ranges such as "0,2-7"`
	for _, tt := range []struct {
		kind pattern.Kind
		s    string
		want string
	}{
		{pattern.Text, "", "is empty"},
		{pattern.Text, " ! ", "is empty"},
		{pattern.Text, "[", syntax},
		{pattern.Text, "[]a]", syntax},
		{pattern.Text, "[!]", syntax},
		{pattern.Text, `[\]`, syntax},
		{pattern.Text, "{a", syntax},
		{pattern.Text, "a}{b", syntax},
		{pattern.Text, "{a,{b}", syntax},
		{pattern.Text, `a\`, syntax},
		{pattern.Text, "\xff", syntax},
		{pattern.Text, "[z-a]", `has the empty range "z-a": the lower end must come first`},
		{pattern.Path, "/dev/[a/]", `has a class that contains "/": a class matches a character within one element of a path`},
		{pattern.Path, "/dev/[+-9]", `has a class that contains "/": a class matches a character within one element of a path`},
		{pattern.Text, strings.Repeat("a", 513), "is longer than 512 bytes"},
		{pattern.Text, strings.Repeat("{a,b}", 7), "has more than 64 alternatives: use a list of patterns"},
		{pattern.Path, "/dev/{" + strings.Repeat(",", 15) + "}" + strings.Repeat("?", 300), "is longer than 4096 bytes with its alternatives spelled out: use a list of patterns"},
		{pattern.Text, strings.Repeat("{a,b}", 100), "has more than 64 alternatives: use a list of patterns"},
		{pattern.Number, "7-2", number},
		{pattern.Number, "1,", number},
		{pattern.Number, "0x1", number},
		{pattern.Number, "1x*", number},
	} {
		p, err := pattern.Parse(tt.kind, tt.s)
		if err == nil || err.Error() != tt.want || len(p.Alternatives()) > 0 {
			t.Errorf("Parse(%q) = %v, %v, want %s", tt.s, p, err, tt.want)
		}
	}
}

// Patterns come from the ConfigMap, and values from hardware: this would take years if
// wildcards were tried in all combinations.
func TestNoExponentialTime(t *testing.T) {
	t.Parallel()
	for kind, written := range map[pattern.Kind]string{
		pattern.Text: strings.Repeat("a*", 250) + "b",
		pattern.Path: strings.Repeat("/**/a*a", 70) + "/b",
	} {
		for _, text := range []string{strings.Repeat("a", 4095), strings.Repeat("/aaa", 1024)} {
			if values(t, kind, written).Match(text) {
				t.Errorf("%s matches", written)
			}
		}
	}
}
