package config

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// hostile are texts of a given size that are expensive to parse: the limits must reject
// some, and the cost of the others is proportional to their size.
func hostile(size int) (refused, bearable map[string]string) {
	fill := func(head, line, tail string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len()+len(line)+len(tail)+10 < size; i++ {
			b.WriteString(strings.ReplaceAll(line, "#", strconv.Itoa(i)))
		}
		return b.String() + tail
	}
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)-1) }
	long := strings.Repeat("k", size/2)
	refused = map[string]string{
		"nested tables, value":     "a=" + strings.Repeat("{a=", 10_000) + "1" + strings.Repeat("}", 10_000),
		"nested tables, open":      "a=" + repeat("{a="),
		"nested lists":             "a=" + repeat("[")[2:],
		"nested lists and tables":  "a=" + repeat("[{a="),
		"dotted key":               repeat("a.") + "a=1",
		"dotted keys":              fill("", strings.Repeat("a.", 100)+"k#=1\n", ""),
		"dotted header":            "[" + repeat("a.") + "a]",
		"dotted headers":           fill("", "["+strings.Repeat("a.", 100)+"k#]\n", ""),
		"dotted in inline":         "a={" + repeat("a.") + "a=1}",
		"keys below a long header": fill("["+long+"]\n", "k#=1\n", ""),
		"keys below a long key":    fill(long+"={", "k#=1,", "}"),
		"keys below quoted key":    fill(`"`+long+`"={`, "k#=1,\n", ""),
		"lists below a long key":   fill(long+"=[", "[],", "]"),
		"tables below a long key":  fill(long+"=[", "{},", "]"),
	}
	bearable = map[string]string{
		"nested tables at the top": repeat("{a="),
		"dotted key without end":   repeat("a.") + "a",
		"deep and long":            fill(strings.Repeat("[["+strings.Repeat("k", 200)+".a]]\n", 20), strings.Repeat("k.", 12)+"#=1\n", ""),
		"as long as possible":      fill("["+strings.Repeat("k", 400)+"]\n", strings.Repeat("k.", 15)+"#=1\n", ""),
		"long, below the limit":    fill("["+strings.Repeat("k", 60)+"]\n", "k#=1\n", ""),
		"many resources":           fill("", "[[resource]]\n", ""),
		"many unknown keys":        fill("[[resource]]\n", "kount#=1\n", ""),
		"many long unknown keys":   fill("[[resource]]\n", strings.Repeat("name", 10)+"#=1\n", ""),
		"many problems":            fill("[[resource]]\nname='"+long+"'\n", "k#=1\n", ""),
		"long list":                fill("a=[", "#,", "]"),
		"list of tables":           fill("a=[", "{a=#},", "]"),
		"long string":              fill("a='''", "abc", "'''"),
		"alternatives":             fill("[[resource]]\nmatch.usb.serial=[", "'{,}{,}{,}{,}{,}{,}',", "]"),
		"too many alternatives":    fill("[[resource]]\nmatch.usb.serial=[", "'"+strings.Repeat("{,}", 300)+"',", "]"),
		"nested alternatives":      fill("[[resource]]\nmatch.usb.serial=[", "'"+strings.Repeat("{", 500)+strings.Repeat("}", 500)+"',", "]"),
		"matches":                  fill("domain='a.b'\n[[resource]]\nname='x'\nmatch=[", "{glob='/dev/#'},", "]"),
		"variables":                fill("domain='a.b'\n[[resource]]\nname='x'\nmatch.usb={}\ncontainer.env.A='", "${id}", "'"),
		"unknown variables":        fill("domain='a.b'\n[[resource]]\nname='x'\nmatch.usb={}\n", "container.env.A#='${idd#}'\n", ""),
		"wildcards":                fill("domain='a.b'\n[[resource]]\nname='x'\nmatch.glob=['/dev/*','/dev/", "*", "']"),
	}
	return refused, bearable
}

// No file takes more than a second per MiB. Without the limits many of these take
// minutes and gigabytes.
func TestHostile(t *testing.T) {
	t.Parallel()
	refused, bearable := hostile(maxFileSize / 8)
	for name, text := range refused {
		if scan(text, 0).problem == "" {
			t.Errorf("%s: not refused", name)
		}
	}
	for name, text := range bearable {
		start := time.Now()
		cfg, err := Parse(File{Name: "hostile.toml", Data: []byte(text)})
		if (cfg == nil) == (err == nil) {
			t.Errorf("%s: both a value and an error, or neither", name)
		}
		// Generous for the race detector and a busy machine.
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: %d bytes took %v", name, len(text), took)
		}
	}
}

// Excess is refused before it is built, with its figure.
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
		"empty resources":     {many(70_000, "[[resource]]\n"), "limits.toml:1001:1: the configuration has more than 1000 resources"},
		"resources in a list": {"resource = [" + many(1001, "{},") + "]", "limits.toml:1:1: resource: the configuration has more than 1000 resources"},
		"keys":                {head + many(20_000, "container.env.E# = \"\"\n"), "limits.toml:19997:15: the configuration has more than 20000 keys and tables"},
		"tables":              {head + "with = [" + many(30_000, "{},") + "]", "limits.toml:5:59988: the configuration has more than 20000 keys and tables"},
		"variables": {head + "container.env.X = \"" + strings.Repeat("${id}", 101) + "\"",
			`limits.toml:5:15: resource 1 ("a"): container.env.X: "${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}${id}"... has more than 100 variables`},
		"text": {head + "container.env.X = \"" + strings.Repeat("x", 65537) + "\"",
			`limits.toml:5:15: resource 1 ("a"): container.env.X: "` + strings.Repeat("x", 80) + `"... is longer than 65536 bytes`},
		"virtual devices": {"domain = \"example.com\"\n[[resource]]\nname = \"a\"\nmatch.virtual = [" + many(10_001, "\"v#\",") + "]",
			`limits.toml:4:7: resource 1 ("a"): match 1: virtual: 10001 virtual devices exceed the limit of 10000 in a configuration`},
		"alternatives": {head + "exclude.glob = [" + many(11_000, "\"/dev/{a,b}#\",") + "]",
			` exceeds the limit of 512 KiB for all patterns of a configuration, with their alternatives spelled out`},
		// Each is a token, and each alternative repeats them.
		"wildcards": {head + "exclude.glob = [" + many(400, "\"/dev/{"+strings.Repeat(",", 15)+"}"+strings.Repeat("?", 230)+"\",") + "]",
			"exceeds the limit of 512 KiB for all patterns"},
		"wildcards of a variable": {head + many(30, "container.env.E# = \""+strings.Repeat("${devnode:/dev/"+strings.Repeat("?", 230)+"}", 90)+"\"\n"),
			"exceeds the limit of 512 KiB for all patterns"},
		"wildcards of a companion": {head + "with = [" + many(400, "{ path = \"/dev/x#{"+strings.Repeat(",", 15)+"}"+strings.Repeat("?", 230)+"\" },") + "]",
			"exceeds the limit of 512 KiB for all patterns"},
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
