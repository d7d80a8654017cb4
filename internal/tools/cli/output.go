package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/device"
)

// printable escapes everything that a terminal may interpret, because devices choose their serial
// numbers and containers can choose the names of nodes. The escapes of valid text are also
// escapes of JSON. All commands write to a printable.
type printable struct{ io.Writer }

// Unescaped returns the output behind the output of a command, for a recording: escapes would change
// it.
func Unescaped(w io.Writer) io.Writer {
	if p, isPrintable := w.(printable); isPrintable {
		return p.Writer
	}
	return w
}

// Write writes the escaped text. It returns len(text), not the number of escaped bytes: io.Writer
// does not permit more than that, and fewer would be a short write. A character that is split
// between two writes is escaped as invalid UTF-8, so callers write whole texts.
func (p printable) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.Writer, device.Printable(string(text), "\n\t"))
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// Reporter is the report of a command. It encodes as JSON, and writes a table for people. The
// names of its JSON fields are an API, and the table is not.
type Reporter interface {
	// Table writes the table. wide asks for all columns, or for all rows if the table is
	// otherwise shortened. A report without more to show ignores it.
	Table(w io.Writer, wide bool) error
}

// Reports makes cmd write the report that get returns, in the format of -o. formats are the
// formats in addition to "table", which is the default. If get returns an error as well, the
// report is still written: it says what is wrong. get must return a nil interface if there is no
// report.
func Reports(cmd *cobra.Command, get func(cmd *cobra.Command, args []string) (Reporter, error), formats ...string) *cobra.Command {
	format := OutputFlag(cmd, append([]string{"table"}, formats...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := get(cmd, args)
		if report == nil {
			return err
		}
		writeErr := WriteReport(cmd.OutOrStdout(), *format, report)
		return cmp.Or(writeErr, err)
	}
	return cmd
}

// WriteReport writes a report in one of the formats of -o: table, wide, json or yaml.
func WriteReport(w io.Writer, format string, report Reporter) error {
	if format == "table" || format == "wide" {
		return report.Table(w, format == "wide")
	}
	return Encode(w, format, report)
}

// Encode writes a report as JSON or YAML. The whole text is written at once, or nothing if the
// report cannot be encoded.
func Encode(w io.Writer, format string, report any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	// Patterns and hints contain < and &, which people should be able to read.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(report)
	if err != nil {
		return err
	}
	if format == "yaml" {
		return encodeYAML(w, text.Bytes())
	}
	_, err = w.Write(text.Bytes())
	return err
}

// encodeYAML writes a JSON text as YAML in block style. It parses the JSON as YAML, so that both
// formats have the same keys in the same order, and no type needs YAML tags.
func encodeYAML(w io.Writer, text []byte) error {
	var document yaml.Node
	err := yaml.Unmarshal(text, &document)
	if err != nil {
		return err
	}
	useBlocks(&document)
	const indent = 2
	enc := yaml.NewEncoder(w)
	enc.SetIndent(indent)
	err = enc.Encode(&document)
	if err != nil {
		return err
	}
	return enc.Close()
}

// useBlocks removes the braces and brackets of a document, and the quotes of words and keys. They
// are the style of JSON, which the parser remembers. Empty lists and maps keep theirs: block
// style has no way to write them.
func useBlocks(n *yaml.Node) {
	isUnquoted := n.Kind == yaml.ScalarNode && isWord(n.Value)
	isBlock := len(n.Content) > 0
	if isUnquoted || isBlock {
		n.Style = 0
	}
	// The Content of a mapping alternates between keys and values.
	for i, child := range n.Content {
		useBlocks(child)
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		if isKey && isPlain(child.Value, "_") {
			child.Style = 0
		}
	}
}

// isWord reports whether a text needs no quotes for any reader of YAML. The library already
// quotes true, null and texts with punctuation that has a meaning. But for readers of YAML 1.1,
// no and on are booleans, and 12:30 is a number.
func isWord(s string) bool {
	const longestBoolean = len("yes")
	if len(s) <= longestBoolean {
		return false
	}
	first := rune(s[0])
	beginsLikeText := isLetter(first) || first == '/'
	return beginsLikeText && !strings.ContainsFunc(s, isUnprintable)
}

// isPlain reports whether a text only has ASCII letters, digits and the given punctuation. An
// empty text is not plain: it needs quotes in YAML and in a shell.
func isPlain(s, punctuation string) bool {
	isOther := func(r rune) bool {
		return !isLetter(r) && !isDigit(r) && !strings.ContainsRune(punctuation, r)
	}
	return s != "" && !strings.ContainsFunc(s, isOther)
}

func isLetter(r rune) bool {
	isLower := 'a' <= r && r <= 'z'
	isUpper := 'A' <= r && r <= 'Z'
	return isLower || isUpper
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

// isUnprintable is the negation of unicode.IsPrint, for strings.ContainsFunc.
func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// SortedKeys returns the keys of a map in order, because output must not change between two runs.
func SortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// JoinInts joins numbers for people: "0,1". It returns an empty text for no numbers.
func JoinInts(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// Count returns a number and a noun: "1 device", "2 devices", "0 devices". The plural must be
// regular.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ShellQuote quotes an argument for a POSIX shell if necessary. An empty text becomes two single
// quotes. Nothing is special between single quotes except a single quote, which must be outside
// of them.
func ShellQuote(s string) string {
	if isPlain(s, "-_./:=,@%+") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Shorten joins names. Without wide, it only shows the first few and the number of the others:
// "a,b,c,+2". It does not change names.
func Shorten(names []string, wide bool) string {
	const few = 3
	if !wide && len(names) > few {
		more := fmt.Sprintf("+%d", len(names)-few)
		names = append(slices.Clone(names[:few]), more)
	}
	return strings.Join(names, ",")
}
