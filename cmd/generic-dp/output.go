package main

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
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/device"
)

// printable escapes everything that a terminal may interpret, because devices choose their
// serial numbers and containers can choose the names of nodes. The escapes of valid text are
// also escapes of JSON.
type printable struct{ io.Writer }

func (p printable) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.Writer, device.Printable(string(text), "\n\t"))
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// reporter is the report of a command. It encodes as JSON, and writes a table for people.
type reporter interface {
	// table writes the table. wide asks for all columns.
	table(w io.Writer, wide bool) error
}

// reports makes cmd write the report that get returns, in the format of -o. If get returns an
// error as well, the report is still written: it says what is wrong.
func reports(cmd *cobra.Command, get func(cmd *cobra.Command, args []string) (reporter, error), formats ...string) *cobra.Command {
	format := outputFlag(cmd, append([]string{"table"}, formats...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := get(cmd, args)
		if report == nil {
			return err
		}
		writeErr := writeReport(cmd.OutOrStdout(), *format, report)
		return cmp.Or(writeErr, err)
	}
	return cmd
}

func writeReport(w io.Writer, format string, report reporter) error {
	if format == "table" || format == "wide" {
		return report.table(w, format == "wide")
	}
	return encode(w, format, report)
}

// encode writes a report as JSON or YAML.
func encode(w io.Writer, format string, report any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
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
// formats have the same keys in the same order.
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

// useBlocks removes the braces and brackets of a document, and the quotes of words and keys.
func useBlocks(n *yaml.Node) {
	isUnquoted := n.Kind == yaml.ScalarNode && isWord(n.Value)
	isBlock := len(n.Content) > 0
	if isUnquoted || isBlock {
		n.Style = 0
	}
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

// isPlain reports whether a text only has ASCII letters, digits and the given punctuation.
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

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// table writes rows in aligned columns. It writes a dash for an empty cell, so that columns stay
// countable for awk.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...string) {
	shown := make([]string, len(cells))
	for i, cell := range cells {
		// A tab or a newline in a cell would start another one.
		shown[i] = cmp.Or(device.Printable(cell, ""), "-")
	}
	fmt.Fprintln(t, strings.Join(shown, "\t"))
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// joinInts joins numbers for people: "0,1".
func joinInts(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// count returns a number and a noun: "1 device", "2 devices".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
