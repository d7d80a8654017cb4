package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// document is a configuration in the making.
type document struct {
	// head is comments in front of everything.
	head      []string
	domain    string
	resources []*resource
}

// resource is one [[resource]], with comments in front of it.
type resource struct {
	comments []string
	// off is a resource that is written as a comment.
	off   bool
	pairs table
}

// table is keys and their values in order. A value is a string, a bool, an
// int, a list of strings, a table, an inlined one or a list of tables.
type table []pair

// inlined is a table that is written in one line wherever it stands.
type inlined table

type pair struct {
	key   string
	value any
}

// add appends a pair.
func (t *table) add(key string, value any) { *t = append(*t, pair{key, value}) }

// get is the value of a key, nil where there is none.
func (t table) get(key string) any {
	for _, p := range t {
		if p.key == key {
			return p.value
		}
	}
	return nil
}

// note puts a comment in front of the resource, once.
func (r *resource) note(text string) {
	if !slices.Contains(r.comments, text) {
		r.comments = append(r.comments, text)
	}
}

// commentWidth is how long the lines of comments are, and lineWidth of lists.
const (
	commentWidth = 90
	lineWidth    = 110
)

// render writes the document.
func (d *document) render() []byte {
	var b strings.Builder
	for _, c := range d.head {
		writeComment(&b, c)
	}
	if d.domain != "" {
		fmt.Fprintf(&b, "\ndomain = %s\n", quote(d.domain))
	}
	for _, r := range d.resources {
		b.WriteString("\n")
		for _, c := range r.comments {
			writeComment(&b, c)
		}
		prefix := ""
		if r.off {
			prefix = "# "
		}
		for line := range strings.Lines("[[resource]]\n" + r.pairs.lines("")) {
			b.WriteString(prefix + line)
		}
	}
	return []byte(b.String())
}

// writeComment writes a paragraph in lines of bearable length.
func writeComment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(oneLine(text)) {
		if n := utf8.RuneCountInString(line); n > 1 && n+1+utf8.RuneCountInString(word) > commentWidth {
			b.WriteString(line + "\n")
			line = "#  "
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// lines writes the pairs one a line, tables as dotted keys. One of a list of
// tables is written in one line, since the TOML library loses dotted keys below
// a key that an earlier [[resource]] has as a list.
func (t table) lines(prefix string) string {
	var b strings.Builder
	for _, p := range t {
		key := prefix + bareOrQuoted(p.key)
		switch v := p.value.(type) {
		case table:
			if len(v) == 0 {
				b.WriteString(key + " = {}\n")
				continue
			}
			b.WriteString(v.lines(key + "."))
		case []table:
			switch {
			case len(v) == 1 && len(v[0]) == 1:
				b.WriteString(v[0].lines(key + "."))
				continue
			case len(v) == 1:
				b.WriteString(key + " = " + inline(v[0]) + "\n")
				continue
			}
			b.WriteString(key + " = [\n")
			for _, one := range v {
				b.WriteString("  " + inline(one) + ",\n")
			}
			b.WriteString("]\n")
		case []string:
			line := key + " = " + inline(v)
			if len(line) <= lineWidth || len(v) < 2 {
				b.WriteString(line + "\n")
				continue
			}
			b.WriteString(key + " = [\n")
			for _, one := range v {
				b.WriteString("  " + quote(one) + ",\n")
			}
			b.WriteString("]\n")
		default:
			b.WriteString(key + " = " + inline(v) + "\n")
		}
	}
	return b.String()
}

// inline writes a value in one line.
func inline(value any) string {
	switch v := value.(type) {
	case string:
		return quote(v)
	case []string:
		if len(v) == 1 {
			return quote(v[0])
		}
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case table:
		if len(v) == 0 {
			return "{}"
		}
		pairs := make([]string, len(v))
		for i, p := range v {
			pairs[i] = bareOrQuoted(p.key) + " = " + inline(p.value)
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	case inlined:
		return inline(table(v))
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	}
	panic(fmt.Sprintf("importer: no TOML for %T", value))
}

// bareOrQuoted is a key.
func bareOrQuoted(key string) string {
	for _, r := range key {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return quote(key)
		}
	}
	if key == "" {
		return `""`
	}
	return key
}

// quote is a TOML string: in single quotes, which take everything as it is,
// where double ones would need escapes.
func quote(s string) string {
	plain := utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' })
	switch {
	case plain && !strings.ContainsAny(s, `"\`):
		return `"` + s + `"`
	case plain && !strings.Contains(s, "'"):
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s { // what is not UTF-8 becomes U+FFFD, since TOML has no bytes
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
