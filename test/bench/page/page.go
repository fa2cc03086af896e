// Package page draws the results of the benchmarks: as one page of HTML without
// external resources, and as pictures for documents.
package page

import (
	_ "embed"
	"html/template"
	"io"
)

// Page is the whole page. Its charts are plain SVG, whose colours the page sets
// for a light and a dark screen.
type Page struct {
	Summary  string       // what the figures are
	About    []string     // how, when and where they were measured
	Tables   [][][]string // the overview; the first row of each has its headings
	Sections []Section
}

// Section is a part of the page.
type Section struct {
	Title, About string
	Charts       []Drawn
}

// Drawn is a chart, and the table of its figures, whose first row has their names.
type Drawn struct {
	Title   string
	Chart   Chart // nil if there is a table only
	Figures [][]string
}

// Chart is a picture.
type Chart interface {
	// Draw returns the elements of the picture, and its height. The width is
	// Width.
	Draw() (elements string, height float64)
}

// Key returns the colours of the bars.
func (Page) Key() []struct{ Label, Colour string } {
	return []struct{ Label, Colour string }{
		{"dlock", colour(Dlock, 0)}, {"parts of dlock", colour(Part, 0)}, {"the floor", colour(Floor, 0)}, {"peers", colour(Peer, 0)},
	}
}

// Width is the width of every chart. It fits on a phone, so that the letters have
// their own size there.
const Width = 360

//go:embed page.html
var source string

var layout = template.Must(template.New("page").Funcs(template.FuncMap{"svg": inline}).Parse(source))

// Write writes the page.
func (p Page) Write(w io.Writer) error { return layout.Execute(w, p) }
