package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// column is one column of a table.
type column struct {
	title string
	right bool // aligned to the right: numbers
	style style
	// judge picks the style by what a cell says, instead of style. It may be nil.
	judge func(cell string) style
	// shrink allows to cut cells where a line would be too long. The column with the
	// largest number is cut first; zero is never cut.
	shrink int
}

func (c *column) styleOf(cell string) style {
	if c.judge != nil {
		return c.judge(cell)
	}
	return c.style
}

// expected judges cells that are to say something, green or red.
func expected(want string) func(cell string) style {
	return func(cell string) style {
		if cell == want {
			return green
		}
		return red
	}
}

// table collects rows and prints them aligned. Cells must be harmless already.
type table struct {
	columns []column
	rows    [][]string
	width   int // of a line, at most; zero: no limit
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer, p painter) error {
	titles := make([]string, len(t.columns))
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	for _, row := range append([][]string{titles}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.fit(widths)
	var b strings.Builder
	t.line(&b, titles, widths, func(int) style { return bold }, p)
	for _, row := range t.rows {
		t.line(&b, row, widths, func(i int) style { return t.columns[i].styleOf(row[i]) }, p)
	}
	_, err := fmt.Fprint(w, b.String())
	return outputFailed(err)
}

// columnGap is the space between two columns.
const columnGap = "  "

// minShrunk is how narrow a column may become.
const minShrunk = 8

// fit makes columns narrower until a line fits, as far as that is allowed.
func (t *table) fit(widths []int) {
	if t.width == 0 {
		return
	}
	excess := len(columnGap)*(len(widths)-1) - t.width
	for _, w := range widths {
		excess += w
	}
	for rank := len(t.columns); rank > 0; rank-- {
		for i, c := range t.columns {
			if c.shrink == rank && excess > 0 {
				cut := max(0, min(excess, widths[i]-minShrunk))
				widths[i] -= cut
				excess -= cut
			}
		}
	}
}

// shortened is a cell as it fits into a column.
func shortened(cell string, width int) string {
	if utf8.RuneCountInString(cell) <= width {
		return cell
	}
	return string([]rune(cell)[:width-1]) + "\u2026"
}

// line pads outside of the colours, which have no width.
func (t *table) line(b *strings.Builder, cells []string, widths []int, styleOf func(int) style, p painter) {
	last := len(cells) - 1
	for i, cell := range cells {
		cell = shortened(cell, widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		switch {
		case t.columns[i].right:
			b.WriteString(pad + p.paint(styleOf(i), cell))
		case i == last:
			b.WriteString(p.paint(styleOf(i), cell))
		default:
			b.WriteString(p.paint(styleOf(i), cell) + pad)
		}
		if i < last {
			b.WriteString(columnGap)
		}
	}
	b.WriteByte('\n')
}
