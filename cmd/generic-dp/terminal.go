package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// columns is the width of the narrowest common terminal.
const columns = 80

// widthOf returns the number of columns of an output: the width of the terminal, or COLUMNS,
// which shells set for their children, or else columns. A file or a pipe has no window size, so
// that redirected output does not depend on the terminal unless COLUMNS is exported.
func widthOf(w io.Writer) int {
	// Commands write through a printable, which has no file descriptor of its own.
	if p, ok := w.(printable); ok {
		w = p.Writer
	}
	file, isFile := w.(*os.File)
	if isFile {
		size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
		if err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	given, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err == nil && given > 0 {
		return given
	}
	return columns
}

// wrap writes words in lines of 80 columns, unless a single word is longer. Lines after the first
// one are indented by two more columns. It writes nothing if text has no words. The width of the
// terminal has no effect.
func wrap(w io.Writer, indent, text string) { wrapAt(w, columns, indent, text) }

// wrapAt is like wrap, for lines of a given width. The width counts characters, not cells: wide
// characters, such as Chinese ones, make a line longer than the terminal.
func wrapAt(w io.Writer, width int, indent, text string) {
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
