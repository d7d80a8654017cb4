package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/device"
)

// fleetTable is a table with lines below its rows. It fits 80 columns, unless it is wide: long
// cells are shortened, and lines are wrapped.
type fleetTable struct {
	// wide is set if cells must not be shortened.
	wide bool
	// rows are the head and the rows below it.
	rows []fleetRow
}

// fleetRow is a row and the lines below it. cells has one element for each column.
type fleetRow struct {
	cells []string
	below []string
}

// newFleetTable returns a table without rows. head names its columns.
func newFleetTable(wide bool, head ...string) *fleetTable {
	return &fleetTable{
		wide: wide,
		rows: []fleetRow{{cells: head}},
	}
}

// add adds a row. Missing and empty cells are a dash, and empty lines are left out. Cells come from
// the cluster, so characters that control a terminal are escaped.
func (t *fleetTable) add(cells []string, below ...string) {
	row := fleetRow{cells: make([]string, len(t.rows[0].cells))}
	for i := range row.cells {
		if i < len(cells) {
			row.cells[i] = device.Printable(cells[i], "")
		}
		row.cells[i] = cmp.Or(row.cells[i], "-")
	}
	for _, line := range below {
		if line != "" {
			row.below = append(row.below, line)
		}
	}
	t.rows = append(t.rows, row)
}

const (
	// gap separates columns.
	gap = "  "
	// minColumn is the width to which a column may be shortened.
	minColumn = 8
)

// widths are the widths of the columns. The widest columns are shortened until all fit.
func (t *fleetTable) widths() []int {
	widths := make([]int, len(t.rows[0].cells))
	for _, row := range t.rows {
		for i, cell := range row.cells {
			// Wide characters of East Asian scripts count as one: names of nodes and pods are
			// ASCII.
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := len(gap) * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	// Each step takes one column of the terminal from the widest column of the table, so that short
	// cells stay whole.
	for total > columns && !t.wide {
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

// write writes the table, nothing if it has no rows.
func (t *fleetTable) write(w io.Writer) error {
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
			wrap(w, "    ", line)
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
