package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/config"
)

// word is the value of a flag that has one of some words.
type word struct {
	value *string
	words []string
}

func (w word) Set(text string) error {
	if text = strings.ToLower(text); !slices.Contains(w.words, text) { // log/slog writes levels in capitals
		return errors.New("want " + orList(w.words))
	}
	*w.value = text
	return nil
}

func (w word) String() string { return *w.value }

func (word) Type() string { return "string" }

// orList is "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// outputFlag adds -o to a command. The first format is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *string {
	format := formats[0]
	cmd.Flags().VarP(word{&format, formats}, "output", "o", orList(formats))
	return &format
}

// complete completes the values of the flags that are words, of a command and those
// below it.
func complete(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if w, ok := flag.Value.(word); ok {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(w.words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}

// completeResources completes the names of the configuration's resources, without their
// domain. Others are devices, or are made from hardware.
func (f *flags) completeResources(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cfg, err := config.Load(f.config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	for _, r := range cfg.Resources {
		if _, name, _ := strings.Cut(r.Name, "/"); len(r.NameText) == 0 {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// reporter is what a command reports: data, and a table of it for people.
type reporter interface {
	table(w io.Writer, wide bool) error
}

// reports makes a command of one that writes a report in the format of -o. A report is
// written with an error, too.
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

// isPlain reports whether a text has only letters of ASCII, digits and some others.
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
		cells[i] = cmp.Or(escape(cell, ""), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

func joinInts(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}
