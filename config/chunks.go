package config

import (
	"regexp"

	"github.com/BurntSushi/toml"
)

// The TOML library (v1.6.0) goes by the dotted path of a key, whatever element of
// an array of tables it is in: once one [[resource]] has written match as a list,
// the dotted match.glob and match.usb.id of a later one overwrite each other, and
// nobody is told. So every [[resource]] is decoded by itself, and what is decoded
// is compared with the keys that were read.

var resourceHeader = regexp.MustCompile(`^\[\[[ \t]*(resource|"resource"|'resource')[ \t]*\]\]`)

// chunks are the offsets in data at which a new text may begin: the second
// [[resource]] and those after it.
func chunks(data []byte) []int {
	var starts []int
	depth, begin := 0, true // begin: of a line that is not within a value
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '#':
			i = indexFrom(data, i, "\n") - 1
		case c == '"' || c == '\'':
			i, begin = skipString(data, i)-1, false
		case c == '\n':
			begin = depth == 0
		case c == ' ' || c == '\t' || c == '\r':
		case c == '[' && begin:
			if resourceHeader.Match(data[i:]) {
				starts = append(starts, i)
			}
			i = indexFrom(data, i, "\n") - 1
		default:
			begin = false
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth--
			}
		}
	}
	if len(starts) < 2 {
		return nil
	}
	return starts[1:]
}

// decodeChunks decodes a text. at is where the text begins that err is about.
func decodeChunks(data []byte) (tables map[string]any, at int, err error) {
	starts := chunks(data)
	if starts == nil {
		tables, err = decodeText(data)
		return tables, 0, err
	}
	tables, err = decodeText(data[:starts[0]])
	if err != nil {
		return nil, 0, err
	}
	resources, ok := tables["resource"].([]map[string]any)
	if !ok {
		// Not TOML: resource is given in two ways. The library says it best.
		tables, err = decodeText(data)
		return tables, 0, err
	}
	for i, start := range starts {
		end := len(data)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		more, err := decodeText(data[start:end])
		if err != nil {
			return nil, start, err
		}
		for key, value := range more {
			if list, ok := value.([]map[string]any); ok && key == "resource" {
				resources = append(resources, list...)
			} else {
				tables[key] = value // unknown, and said to be
			}
		}
	}
	tables["resource"] = resources
	return tables, 0, nil
}

// lostError is a key that the library has read and dropped.
type lostError struct{ key string }

func (e lostError) Error() string { return "the key " + quote(e.key) + " is lost by the TOML parser" }

func decodeText(data []byte) (map[string]any, error) {
	var tables map[string]any
	md, err := toml.Decode(string(data), &tables)
	if err != nil {
		return nil, err
	}
	left := make(map[string]int)
	countKeys(left, "", tables)
	for _, key := range md.Keys() {
		path := key.String()
		if left[path]--; left[path] < 0 {
			return nil, lostError{path}
		}
	}
	return tables, nil
}

// countKeys counts each key below a table by its path, as MetaData.Keys writes
// it, and the elements of each list of tables.
func countKeys(count map[string]int, above string, table map[string]any) {
	for name, value := range table {
		path := toml.Key{name}.String()
		if above != "" {
			path = above + "." + path
		}
		count[path]++
		switch v := value.(type) {
		case map[string]any:
			countKeys(count, path, v)
		case []map[string]any:
			count[path] += len(v)
			for _, element := range v {
				countKeys(count, path, element)
			}
		case []any:
			for _, element := range v {
				if t, ok := element.(map[string]any); ok {
					countKeys(count, path, t)
				}
			}
		}
	}
}
