package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Columns is the width of the narrowest common terminal.
const Columns = 80

// Terminal returns the terminal behind the output of a command, nil if it is not a terminal. The
// output of commands is escaped, so that names of devices and pods cannot control the terminal.
func Terminal(w io.Writer) *os.File {
	file, isFile := Unescaped(w).(*os.File)
	if !isFile || !isTerminal(file) {
		return nil
	}
	return file
}

// colours marks the health of devices, and the findings of doctor, which are the first cell of a row.
var colours = strings.NewReplacer(
	"Unhealthy", "\x1b[31mUnhealthy\x1b[0m",
	"Healthy", "\x1b[32mHealthy\x1b[0m",
	"problem  ", "\x1b[31mproblem\x1b[0m  ",
	"warning  ", "\x1b[33mwarning\x1b[0m  ",
)

// hasColours reports whether an output is a terminal whose user wants colours: see no-color.org.
func hasColours(w io.Writer) bool {
	return Terminal(w) != nil && os.Getenv("NO_COLOR") == ""
}

// Wrap writes words in lines of 80 columns, unless a single word is longer. Lines after the first
// one are indented by two more columns. It writes nothing if text has no words. The width of the
// terminal has no effect.
func Wrap(w io.Writer, indent, text string) {
	wrapAt(w, indent, indent+"  ", text)
}

// Hang is like Wrap, for text behind the cells of a row: its other lines begin below the text, as far
// as a long cell leaves room for them.
func Hang(w io.Writer, row, text string) {
	const room = 34
	width := min(utf8.RuneCountInString(row), Columns-room)
	wrapAt(w, row, strings.Repeat(" ", width), text)
}

// wrapAt writes words in lines of Columns, with one indent for the first line and one for the
// others. The width counts characters, not cells: wide characters, such as Chinese ones, make a line
// longer than the terminal.
func wrapAt(w io.Writer, indent, continued, text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(indent+line) + 1 + utf8.RuneCountInString(word)
		if line != "" && length > Columns {
			fmt.Fprintln(w, indent+line)
			line = ""
			indent = continued
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		fmt.Fprintln(w, indent+line)
	}
}
