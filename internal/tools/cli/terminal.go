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

// Wrap writes words in lines of 80 columns, unless a single word is longer. Lines after the first
// one are indented by two more columns. It writes nothing if text has no words. The width of the
// terminal has no effect.
func Wrap(w io.Writer, indent, text string) { WrapAt(w, Columns, indent, text) }

// WrapAt is like Wrap, for lines of a given width. The width counts characters, not cells: wide
// characters, such as Chinese ones, make a line longer than the terminal.
func WrapAt(w io.Writer, width int, indent, text string) {
	line := ""
	continued := indent + "  "
	for _, word := range strings.Fields(text) {
		length := len(indent) + utf8.RuneCountInString(line) + 1 + utf8.RuneCountInString(word)
		if line != "" && length > width {
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
