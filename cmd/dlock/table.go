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
	var b strings.Builder
	t.line(&b, titles, widths, func(int) style { return bold }, p)
	for _, row := range t.rows {
		t.line(&b, row, widths, func(i int) style { return t.columns[i].styleOf(row[i]) }, p)
	}
	_, err := fmt.Fprint(w, b.String())
	return outputFailed(err)
}

// line pads outside of the colours, which have no width.
func (t *table) line(b *strings.Builder, cells []string, widths []int, styleOf func(int) style, p painter) {
	last := len(cells) - 1
	for i, cell := range cells {
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
			b.WriteString("  ")
		}
	}
	b.WriteByte('\n')
}
