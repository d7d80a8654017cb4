package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/device"
)

// printable escapes text for terminals: a device or a container chooses names of nodes and
// serial numbers.
type printable struct{ io.Writer }

func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.Writer, device.Printable(string(text), "\n\t")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// reporter is what a command reports: data, and a table of it for people.
type reporter interface {
	table(w io.Writer, wide bool) error
}

// reports makes cmd write the report that get returns, in the format of -o, even if there
// is an error, too.
func reports(cmd *cobra.Command, get func(cmd *cobra.Command, args []string) (reporter, error), formats ...string) *cobra.Command {
	format := outputFlag(cmd, append([]string{"table"}, formats...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := get(cmd, args)
		if report == nil {
			return err
		}
		written := encode
		if *format == "table" || *format == "wide" {
			written = func(w io.Writer, format string, _ any) error { return report.table(w, format == "wide") }
		}
		return cmp.Or(written(cmd.OutOrStdout(), *format, report), err)
	}
	return cmd
}

// encode writes a report as JSON or YAML.
func encode(w io.Writer, format string, report any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(report)
	if err == nil && format == "yaml" {
		dec := json.NewDecoder(bytes.NewReader(text.Bytes()))
		dec.UseNumber()
		text.Reset()
		err = writeYAML(&text, dec, "")
	}
	if err == nil {
		_, err = w.Write(text.Bytes())
	}
	return err
}

// writeYAML writes the next value of dec in block style, after a key or a dash. The
// library is linked for reading alone: its writer costs 100 kB of every node's memory.
func writeYAML(w *bytes.Buffer, dec *json.Decoder, indent string) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		fmt.Fprintf(w, " %s\n", yamlScalar(token))
		return nil
	}
	if !dec.More() {
		fmt.Fprintf(w, " %s\n", map[json.Delim]string{'{': "{}", '[': "[]"}[open])
		_, err = dec.Token()
		return err
	}
	// A table begins on the line of its dash, and below its key.
	afterDash := bytes.HasSuffix(w.Bytes(), []byte("-"))
	if !afterDash && w.Len() > 0 {
		w.WriteByte('\n')
	}
	for first := true; dec.More(); first = false {
		if first && afterDash {
			w.WriteByte(' ')
		} else {
			w.WriteString(indent)
		}
		if open == '[' {
			w.WriteByte('-')
			err = writeYAML(w, dec, indent+"  ")
		} else {
			key, _ := dec.Token()
			w.WriteString(yamlScalar(key) + ":")
			err = writeYAML(w, dec, indent+"  ")
		}
		if err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// yamlScalar quotes what is not plainly a word or a path: an ID such as 10c4:1234 is a
// number to some readers.
func yamlScalar(token json.Token) string {
	s, ok := token.(string)
	if !ok {
		if token == nil {
			return "null"
		}
		return fmt.Sprint(token)
	}
	if isPlain(s, "_-./ ") && (s[0] < '0' || s[0] > '9') && isPlain(s[:1], "/") && s == strings.TrimSpace(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string has an encoding
	return strings.TrimSpace(quoted.String())
}

// isPlain reports whether a text has only ASCII letters, digits and some punctuation.
func isPlain(s, others string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune(others, r))
	})
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

func joinInts(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
