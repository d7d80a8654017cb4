package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/device"
)

// printable escapes everything that a terminal may interpret: a device or a container
// chooses the names of nodes and serial numbers. The escapes of valid text are also escapes
// of JSON.
type printable struct{ io.Writer }

func (p printable) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.Writer, device.Printable(string(text), "\n\t"))
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// reporter is what a command reports: data, and a table of it for people.
type reporter interface {
	table(w io.Writer, wide bool) error
}

// reports makes cmd write the report that get returns, in the format of -o. A report is
// written even if there is an error as well.
func reports(cmd *cobra.Command, get func(cmd *cobra.Command, args []string) (reporter, error), formats ...string) *cobra.Command {
	format := outputFlag(cmd, append([]string{"table"}, formats...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := get(cmd, args)
		if report == nil {
			return err
		}
		return cmp.Or(writeReport(cmd.OutOrStdout(), *format, report), err)
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

// encodeYAML writes a JSON text as YAML in block style. JSON is YAML too, so that both have
// the same keys in the same order.
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

// useBlocks removes the braces of lists and tables, and the quotes of words.
func useBlocks(n *yaml.Node) {
	isText := n.Kind == yaml.ScalarNode
	if isText && isWord(n.Value) || len(n.Content) > 0 {
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

// isWord reports whether a text needs no quotes. The library quotes true, null and texts with
// punctuation that has a meaning; but to some readers of YAML, no and on are booleans, and
// 12:30 is a number.
func isWord(s string) bool {
	const longestBoolean = len("yes")
	if len(s) <= longestBoolean {
		return false
	}
	isUnprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	isNumber := s[0] >= '0' && s[0] <= '9'
	return isPlain(s[:1], "/") && !isNumber && !strings.ContainsFunc(s, isUnprintable)
}

// isPlain reports whether a text only has ASCII letters, digits and some punctuation.
func isPlain(s, others string) bool {
	isOther := func(r rune) bool {
		isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		isDigit := '0' <= r && r <= '9'
		return !isLetter && !isDigit && !strings.ContainsRune(others, r)
	}
	return s != "" && !strings.ContainsFunc(s, isOther)
}

// table writes rows in aligned columns, with a dash in place of an empty cell.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(device.Printable(cell, ""), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// joinInts is a list for people: "0,1".
func joinInts(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

// count is a number and a noun: "1 device", "2 devices".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
