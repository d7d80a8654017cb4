package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/device"
)

// printable escapes everything that a terminal may interpret, because devices choose their serial
// numbers and containers can choose the names of nodes. The escapes of valid text are also
// escapes of JSON. All commands write to a printable.
type printable struct {
	io.Writer
	// isColoured is set for a terminal that shows colours.
	isColoured bool
	// failed is the first error of a write: many lines of a report are written without a check.
	failed error
}

// Unescaped returns the output behind the output of a command, for a recording: escapes would change
// it.
func Unescaped(w io.Writer) io.Writer {
	if p, isPrintable := w.(*printable); isPrintable {
		return p.Writer
	}
	return w
}

// Write writes the escaped text. It returns len(text), not the number of escaped bytes: io.Writer
// does not permit more than that, and fewer would be a short write. A character that is split
// between two writes is escaped as invalid UTF-8, so callers write whole texts.
func (p *printable) Write(text []byte) (int, error) {
	shown := device.Printable(string(text), "\n\t")
	if p.isColoured {
		shown = colours.Replace(shown)
	}
	_, err := io.WriteString(p.Writer, shown)
	if err != nil {
		p.failed = cmp.Or(p.failed, err)
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

// WriteReport writes a report in one of the formats of -o: table, wide or json.
func WriteReport(w io.Writer, format string, report Reporter) error {
	if format == "table" || format == "wide" {
		return report.Table(w, format == "wide")
	}
	return Encode(w, report)
}

// Encode writes a report as JSON. The whole text is written at once, or nothing if the report cannot
// be encoded.
func Encode(w io.Writer, report any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	// Patterns and hints contain < and &, which people should be able to read.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(report)
	if err != nil {
		return err
	}
	_, err = w.Write(text.Bytes())
	return err
}

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

// plain are the characters that a POSIX shell does not interpret.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"

// ShellQuote quotes an argument for a POSIX shell if necessary. An empty text becomes two single
// quotes. Nothing is special between single quotes except a single quote, which must be outside
// of them.
func ShellQuote(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Shorten joins names by a separator. Without wide, it only shows the first few and the number of the
// others: "a,b,c,+2". It does not change names.
func Shorten(names []string, wide bool, separator string) string {
	const few = 3
	if !wide && len(names) > few {
		more := fmt.Sprintf("+%d", len(names)-few)
		names = append(slices.Clone(names[:few]), more)
	}
	return strings.Join(names, separator)
}

// inCell escapes what separates names and cells as JSON does.
var inCell = strings.NewReplacer(",", `\u002c`, " ", `\u0020`)

// JoinNames joins the names of nodes in a cell of a wide table: "a,b". Commas and spaces in names are
// escaped, so that the list can be split.
func JoinNames(names []string) string {
	escaped := make([]string, len(names))
	for i, name := range names {
		escaped[i] = inCell.Replace(name)
	}
	return strings.Join(escaped, ",")
}

// Few returns the first lines, and how many more there are: 500 nodes may have the same reason. It
// does not change lines.
func Few(lines []string) []string {
	const most = 8
	if len(lines) <= most {
		return lines
	}
	more := fmt.Sprintf("and %d more", len(lines)-most)
	return append(lines[:most:most], more)
}
