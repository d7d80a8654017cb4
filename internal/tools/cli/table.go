package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Table is a table with lines below its rows. Its columns are two spaces apart.
type Table struct {
	// isWide is set if long cells are not shortened.
	isWide bool
	// rows are the head and the rows below it.
	rows []row
}

// row is a row and the lines below it. cells has one element for each column.
type row struct {
	cells []string
	below []string
}

// NewTable returns a table whose rows fit the narrowest common terminal, as far as possible. A wide
// table never shortens a cell. head names its columns.
func NewTable(wide bool, head ...string) *Table {
	return &Table{
		isWide: wide,
		rows:   []row{{cells: head}},
	}
}

// Row adds a row. Missing and empty cells are a dash, so that columns stay countable for awk.
// Characters that control a terminal are escaped.
func (t *Table) Row(cells ...string) {
	t.Add(cells)
}

// Add adds a row with lines below it, which are wrapped. Empty lines are left out.
func (t *Table) Add(cells []string, below ...string) {
	next := row{cells: make([]string, len(t.rows[0].cells))}
	for i := range next.cells {
		if i < len(cells) {
			// A newline in a cell would start another row.
			next.cells[i] = device.Printable(cells[i], "")
		}
		next.cells[i] = cmp.Or(next.cells[i], "-")
	}
	for _, line := range below {
		if line != "" {
			next.below = append(next.below, line)
		}
	}
	t.rows = append(t.rows, next)
}

const (
	// gap separates columns.
	gap = "  "
	// minColumn is the width to which a column may be shortened.
	minColumn = 8
)

// widths are the widths of the columns. The widest columns are shortened until all fit.
func (t *Table) widths() []int {
	widths := make([]int, len(t.rows[0].cells))
	for _, row := range t.rows {
		for i, cell := range row.cells {
			// Wide characters of East Asian scripts count as one: names of nodes and pods are
			// ASCII.
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := sum(widths)
	// Each step takes one column of the terminal from the widest column of the table, so that short
	// cells stay whole.
	for !t.isWide && total > Columns {
		widest := 0
		for i := range widths {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		// Then the lines are too long: unreadable cells would be worse.
		if widths[widest] <= minColumn {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// sum returns the width of a row with the given widths of its columns.
func sum(widths []int) int {
	total := len(gap) * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	return total
}

// Write writes the table, nothing if it has no rows.
func (t *Table) Write(w io.Writer) error {
	// The only row is the head.
	if len(t.rows) == 1 {
		return nil
	}
	widths := t.widths()
	for _, row := range t.rows {
		cells := make([]string, len(row.cells))
		for i, cell := range row.cells {
			cell = cut(cell, widths[i])
			cells[i] = cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		}
		// Spaces at the end would wrap on a narrow terminal.
		line := strings.TrimRight(strings.Join(cells, gap), " ")
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
		for _, line := range row.below {
			// Lines below a row may be longer than the table, and are wrapped at words.
			wrapAt(w, "    ", "      ", line)
		}
	}
	return nil
}

// cut shortens a text in the middle: names of nodes and pods often differ at their ends only. width
// is in characters, including the ellipsis.
func cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	// One column is for the ellipsis.
	head := (width - 1) / 2
	tail := width - 1 - head
	return string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}
