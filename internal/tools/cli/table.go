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
	// rows are the head and the rows below it.
	rows []row
}

// row is a row and the lines below it. cells has one element for each column.
type row struct {
	cells []string
	below []string
}

// NewTable returns a table. head names its columns. Cells are never shortened: people copy names of nodes
// and pods.
func NewTable(head ...string) *Table {
	return &Table{rows: []row{{cells: head}}}
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

// gap separates columns.
const gap = "  "

// widths are the widths of the columns.
func (t *Table) widths() []int {
	widths := make([]int, len(t.rows[0].cells))
	for _, row := range t.rows {
		for i, cell := range row.cells {
			// Wide characters of East Asian scripts count as one: names of nodes and pods are
			// ASCII.
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
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
