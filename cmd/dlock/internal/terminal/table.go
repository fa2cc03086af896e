package terminal

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Column is one column of a table.
type Column struct {
	Title string
	Right bool // aligned to the right: numbers
	Style Style
	Want  string // not empty: a cell with this text is green, every other one red

	// Shrink allows cutting cells where a line would be too long. The column with the
	// largest value is cut first; a column with zero is never cut.
	Shrink int
}

func (c *Column) styleOf(cell string) Style {
	switch c.Want {
	case "":
		return c.Style
	case cell:
		return Green
	}
	return Red
}

// Table collects rows and prints them aligned. The cells must be escaped already.
type Table struct {
	Columns []Column
	Rows    [][]string
	Width   int // of a line, at most; zero: no limit
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Titles returns the titles of the columns.
func (t *Table) Titles() []string {
	titles := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		titles[i] = c.Title
	}
	return titles
}

// Print writes the titles and the rows.
func (t *Table) Print(w io.Writer, p Painter) error {
	titles := t.Titles()
	widths := make([]int, len(titles))
	for _, row := range append([][]string{titles}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.fit(widths)
	var b strings.Builder
	t.line(&b, titles, widths, func(int) Style { return Bold }, p)
	for _, row := range t.Rows {
		t.line(&b, row, widths, func(i int) Style { return t.Columns[i].styleOf(row[i]) }, p)
	}
	return Print(w, b.String())
}

const (
	columnGap = "  "
	minShrunk = 8 // the least width of a column that was cut
)

// fit narrows the columns that may shrink until a line fits.
func (t *Table) fit(widths []int) {
	if t.Width == 0 {
		return
	}
	excess := len(columnGap)*(len(widths)-1) - t.Width
	for _, w := range widths {
		excess += w
	}
	for rank := len(t.Columns); rank > 0; rank-- {
		for i, c := range t.Columns {
			if c.Shrink == rank && excess > 0 {
				cut := max(0, min(excess, widths[i]-minShrunk))
				widths[i] -= cut
				excess -= cut
			}
		}
	}
}

// line pads outside of the colours, which have no width.
func (t *Table) line(b *strings.Builder, cells []string, widths []int, styleOf func(int) Style, p Painter) {
	last := len(cells) - 1
	for i, cell := range cells {
		if utf8.RuneCountInString(cell) > widths[i] {
			cell = string([]rune(cell)[:widths[i]-1]) + "\u2026"
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		switch {
		case t.Columns[i].Right:
			b.WriteString(pad + p.Paint(styleOf(i), cell))
		case i == last:
			b.WriteString(p.Paint(styleOf(i), cell))
		default:
			b.WriteString(p.Paint(styleOf(i), cell) + pad)
		}
		if i < last {
			b.WriteString(columnGap)
		}
	}
	b.WriteByte('\n')
}
