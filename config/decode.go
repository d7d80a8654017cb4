package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// source is a file and its text.
type source struct {
	name string
	text string
	// order of the file in the configuration.
	order int
}

// utf8BOM is written by some editors before the text.
const utf8BOM = "\xef\xbb\xbf"

// decode returns the tree of a file, or reports a syntax error. The library only decides whether the
// text is valid: its tables have no positions, and its structs accept keys in any letter case and pass
// integers to text unmarshalers.
func (r *reader) decode(f File, order int) (*source, *node) {
	src := &source{name: f.shown(), order: order}
	fail := func(at int, text, hint string) (*source, *node) {
		r.report(report{source: src, at: at, Problem: Problem{Text: text, Hint: hint}})
		return src, nil
	}
	src.text = strings.TrimPrefix(string(f.Data), utf8BOM)
	s := scan(src.text, r.nodes)
	r.nodes = s.nodes
	// A text that exceeds a limit never reaches the library, which could take minutes for it.
	if s.problem != "" {
		return fail(s.at, s.problem, "")
	}
	start, err := checkSyntax(src.text, s.resources)
	var syntax toml.ParseError
	if errors.As(err, &syntax) {
		// The position is relative to the part that was decoded. The bounds protect against a
		// position outside of the text, which lineAt could not slice.
		at := min(start+max(syntax.Position.Start, 0), len(src.text))
		return fail(at, syntaxMessage(syntax.Message), syntaxHint(syntax.Message, src.text, at))
	}
	if err != nil {
		return fail(noPosition, err.Error(), "")
	}
	return src, s.root
}

// checkSyntax returns an error of the library if the text is not TOML. start is the offset of the
// part to which it refers. Each [[resource]] is decoded separately: the library (v1.6.0) tracks keys by
// their dotted paths across the elements of an array of tables, so that the keys of one resource would
// count for another one.
func checkSyntax(text string, starts []int) (start int, err error) {
	// Each part ends where the next one starts.
	ends := append(slices.Clone(starts), len(text))
	if len(starts) > 0 {
		ends = ends[1:] // the first resource is decoded with the text above it
	}
	for _, end := range ends {
		var part map[string]any
		if _, err := toml.Decode(text[start:end], &part); err != nil {
			return start, err
		}
		start = end
	}
	return 0, nil
}
