package terminal

import (
	"io"
	"slices"
	"strings"
	"unicode"
)

// Column is one column of a table.
type Column struct {
	Title string
	Right bool // aligned to the right: numbers
	Style Style

	Shrink int // of columns that are too wide the one with the largest value is cut first; zero: never
}

// Table collects rows and prints them aligned. The cells must be escaped already.
type Table struct {
	Columns []Column
	Rows    [][]string
	Width   int // of a line, at most; zero: no limit
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print writes the titles and the rows.
func (t *Table) Print(w io.Writer, p Painter) error {
	titles := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		titles[i] = c.Title
	}
	widths := make([]int, len(titles))
	for _, row := range append([][]string{titles}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], columns(cell))
		}
	}
	widths = t.fit(widths)
	var b strings.Builder
	t.line(&b, titles, widths, func(int) Style { return Bold }, p)
	for _, row := range t.Rows {
		t.line(&b, row, widths, func(i int) Style { return t.Columns[i].Style }, p)
	}
	return Print(w, b.String())
}

const (
	columnGap = "  "
	minShrunk = 8 // the least width of a column that was cut
)

// fit narrows the columns that may shrink and leaves out columns on the right, as necessary.
func (t *Table) fit(widths []int) []int {
	if t.Width == 0 {
		return widths
	}
	least, fits := -len(columnGap), 0
	for i, w := range widths {
		if t.Columns[i].Shrink > 0 {
			w = min(w, minShrunk)
		}
		if least += len(columnGap) + w; least > t.Width {
			break
		}
		fits++
	}
	widths = widths[:max(1, fits)]
	excess := len(columnGap)*(len(widths)-1) - t.Width
	for _, w := range widths {
		excess += w
	}
	mostShrink := slices.MaxFunc(t.Columns, func(a, b Column) int { return a.Shrink - b.Shrink }).Shrink
	for rank := mostShrink; rank > 0; rank-- {
		for i := range widths {
			if t.Columns[i].Shrink == rank && excess > 0 {
				cut := max(0, min(excess, widths[i]-min(minShrunk, t.Width)))
				widths[i] -= cut
				excess -= cut
			}
		}
	}
	return widths
}

// line pads outside of the colours, which have no width.
func (t *Table) line(b *strings.Builder, row []string, widths []int, styleOf func(int) Style, p Painter) {
	var cells []string
	for i, width := range widths {
		cell := cut(row[i], width)
		pad := strings.Repeat(" ", width-columns(cell))
		if cell = p.Paint(styleOf(i), cell); t.Columns[i].Right {
			cells = append(cells, pad+cell)
		} else {
			cells = append(cells, cell+pad)
		}
	}
	b.WriteString(strings.TrimRight(strings.Join(cells, columnGap), " ") + "\n")
}

func cut(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	left := width - 1
	for i, c := range text {
		if left -= columns(string(c)); left < 0 {
			return text[:i] + "\u2026"
		}
	}
	return text
}

// columns returns how many columns of a terminal a text takes: two for a wide character.
func columns(text string) (n int) {
	for _, c := range text {
		switch {
		case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf):
		case unicode.Is(wide, c):
			n += 2
		default:
			n++
		}
	}
	return n
}

var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115f, 1}, {0x231a, 0x231b, 1}, {0x2e80, 0x303e, 1}, {0x3041, 0xa4cf, 1}, {0xa960, 0xa97c, 1},
		{0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1}, {0xfe30, 0xfe6f, 1}, {0xff01, 0xff60, 1}, {0xffe0, 0xffe6, 1},
	},
	R32: []unicode.Range32{{0x1f300, 0x1f64f, 1}, {0x1f680, 0x1f6ff, 1}, {0x1f900, 0x1f9ff, 1}, {0x20000, 0x3fffd, 1}},
}
