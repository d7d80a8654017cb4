package config

import (
	"strconv"
	"strings"
	"testing"
)

// What is multiplied is refused before it is built, with its figure.
func TestLimits(t *testing.T) {
	t.Parallel()
	const head = "domain = \"example.com\"\n[[resource]]\nname = \"a\"\nmatch.glob = \"/dev/a\"\n"
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i)))
		}
		return b.String()
	}
	for name, tc := range map[string]struct{ text, want string }{
		"empty resources":     {many(70_000, "[[resource]]\n"), "limits.toml:1001:1: more than 1000 resources: want fewer"},
		"resources in a list": {"resource = [" + many(1001, "{},") + "]", "limits.toml:1:1: resource: more than 1000 resources: want fewer"},
		"keys":                {head + many(20_000, "container.env.E# = \"\"\n"), "limits.toml:19997:15: more than 20000 keys and tables in a configuration: want fewer"},
		"tables":              {head + "with = [" + many(30_000, "{},") + "]", "limits.toml:5:59988: more than 20000 keys and tables in a configuration: want fewer"},
		"variables": {head + "container.env.X = \"" + strings.Repeat("${id}", 101) + "\"",
			`limits.toml:5:15: resource 1 ("a"): container.env.X: "${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}"... has too many variables: want at most 100`},
		"text": {head + "container.env.X = \"" + strings.Repeat("x", 65537) + "\"",
			`limits.toml:5:15: resource 1 ("a"): container.env.X: "` + strings.Repeat("x", 80) + `"... is too long: want at most 65536 bytes`},
		"virtual devices": {"domain = \"example.com\"\n[[resource]]\nname = \"a\"\nmatch.virtual = [" + many(10_001, "\"v#\",") + "]",
			`limits.toml:4:7: resource 1 ("a"): match 1: virtual: 10001 virtual devices: want at most 10000 in a configuration`},
		"alternatives": {head + "exclude.glob = [" + many(10_001, "\"/dev/{a,b}#\",") + "]",
			`"/dev/{a,b}9999" is too much: want at most 20000 patterns and alternatives in a configuration`},
	} {
		_, err := Parse(File{Name: "limits.toml", Data: []byte(tc.text)})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %.400v, want %s", name, err, tc.want)
		}
	}
	file := File{Name: "a.toml", Data: []byte(many(700, "[[resource]]\nname = \"example.com/a#\"\nmatch.glob = \"/dev/a#\"\n"))}
	other := File{Name: "b.toml", Data: []byte(many(700, "[[resource]]\nname = \"example.com/b#\"\nmatch.glob = \"/dev/b#\"\n"))}
	if _, err := Parse(file, other); err == nil || !strings.Contains(err.Error(), "more than 1000 resources") {
		t.Errorf("in two files: %v", err)
	}
	if _, err := Parse(file); err != nil {
		t.Error(err)
	}
}
