package config

import (
	"errors"
	"maps"
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
	// keys are the keys of the text with their positions. It is nil if the text is invalid.
	keys *node
}

// utf8BOM is written by some editors before the text.
const utf8BOM = "\xef\xbb\xbf"

// decode decodes the text of a file into tables, or reports a syntax error. It does not decode into
// structs, because the library would accept keys in any letter case, pass integers to text
// unmarshalers and report wrong positions inside arrays of tables.
func (r *reader) decode(f File, order int) (*source, map[string]any) {
	src := &source{name: f.shown(), order: order}
	fail := func(at int, text, hint string) (*source, map[string]any) {
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
	tables, start, err := decodeResources(src.text, s.resources)
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
	// Without this check, a match would silently lose a condition and select more devices.
	lost := s.root.keys["resource"].lost(tables["resource"])
	if lost != nil {
		return fail(lost.at, "the TOML parser loses the key "+quote(lost.name)+": write the table that contains it in braces, on one line",
			`match = { glob = "/dev/ttyUSB*", usb.id = "10c4:ea60" }`)
	}
	// Only a valid text has positions: value.find relies on keys that match the tables.
	src.keys = s.root
	return src, tables
}

// decodeResources decodes each [[resource]] of a text separately. The library (v1.6.0) tracks keys
// by their dotted paths across the elements of an array of tables: once one [[resource]] has match
// as a list, the dotted keys match.glob and match.usb.id of a later one overwrite each other.
// starts are the offsets of the headers. start is the offset of the part to which err refers.
func decodeResources(text string, starts []int) (tables map[string]any, start int, err error) {
	// Each part ends where the next one starts.
	ends := append(slices.Clone(starts), len(text))
	if len(starts) > 0 {
		ends = ends[1:] // the first resource is decoded with the text above it
	}
	for _, end := range ends {
		var part map[string]any
		_, err := toml.Decode(text[start:end], &part)
		if err != nil {
			return nil, start, err
		}
		// The first part has the keys of the top level.
		if tables == nil {
			tables = part
			start = end
			continue
		}
		resources, isList := tables["resource"].([]map[string]any)
		if !isList {
			// This is not TOML, because resource has two types. The library reports that if it
			// decodes the whole text.
			tables = nil
			_, err := toml.Decode(text, &tables)
			return tables, 0, err
		}
		more, _ := part["resource"].([]map[string]any)
		maps.Copy(tables, part) // keys after a resource that are not below it are reported as unknown
		tables["resource"] = append(resources, more...)
		start = end
	}
	return tables, 0, nil
}

// lost returns the first key at or below n that the library has read and dropped, or nil. raw is
// the value that the library has decoded. It compares the tree of the scan with the tables of the
// library. A key of the tree without a value is lost. "First" is by offset, because the order of a
// map is random.
func (n *node) lost(raw any) (first *node) {
	// A node without a value is itself the lost key. Without a node, nothing can be lost.
	if n == nil || raw == nil {
		return n
	}
	below := func(child *node, raw any) {
		lost := child.lost(raw)
		if lost == nil {
			return
		}
		if first == nil || lost.at < first.at {
			first = lost
		}
	}
	items, _ := elements(raw)
	for i, item := range n.items {
		var decoded any
		// A missing element stays nil, and counts as lost.
		if i < len(items) {
			decoded = items[i]
		}
		below(item, decoded)
	}
	table, _ := raw.(map[string]any)
	for key, child := range n.keys {
		below(child, table[key])
	}
	return first
}
