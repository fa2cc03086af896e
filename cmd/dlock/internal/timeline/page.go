package timeline

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Page is a page about runs that needs no other file.
type Page struct {
	Title  string
	Intro  []string   // paragraphs
	Header []string   // of the table
	Table  [][]string // one row for each run
	Marked int        // the column of the table that is coloured
	Runs   []Run
}

const style = `
:root { color-scheme: light dark; }
body { font: 15px/1.5 ` + fonts + `; max-width: 1280px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1.5em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .9em; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
.bad { color: ` + red + `; font-weight: 600; }
.good { color: ` + green + `; font-weight: 600; }
.chart { overflow-x: auto; margin: 0 0 2em; }
h2 { margin-bottom: .2em; }
h2 small { font-weight: 400; color: ` + grey + `; }
.key i { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1.2em; }
`

const pageWidth, pixelsPerSecond = 1150, 200 // the picture of a long run is scrolled

// HTML returns the page: a table, and each run large enough to see each span.
func HTML(page Page) string {
	var b strings.Builder
	text := html.EscapeString
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>%s</title>\n<style>%s</style>\n<h1>%[1]s</h1>\n",
		text(page.Title), style)
	for _, paragraph := range page.Intro {
		fmt.Fprintf(&b, "<p>%s</p>\n", text(paragraph))
	}
	b.WriteString("<table>\n<tr>")
	for _, title := range page.Header {
		fmt.Fprintf(&b, "<th>%s</th>", text(title))
	}
	b.WriteString("</tr>\n")
	for i, row := range page.Table {
		b.WriteString("<tr>")
		for column, cell := range row {
			class := ""
			switch {
			case column != page.Marked:
			case page.Runs[i].Bad:
				class = ` class="bad"`
			default:
				class = ` class="good"`
			}
			fmt.Fprintf(&b, "<td%s>%s</td>", class, text(cell))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table>\n<p class=\"key\">Which process was inside when:")
	for _, entry := range legend(page.Runs) {
		fmt.Fprintf(&b, "<i style=\"background:%s\"></i>%s", entry.colour, text(entry.text))
	}
	b.WriteString(". Point at a bar to see what it is.</p>\n")
	for _, run := range page.Runs {
		p := picture{plot: max(pageWidth-left-right, run.Length.Seconds()*pixelsPerSecond), lane: 14}
		if _, rows := stack(run.sorted(0)); rows > 1 {
			p.lane = 6
		}
		caption, verdict := strings.ReplaceAll(run.Caption, "\n", " "), strings.ReplaceAll(run.Verdict, "\n", ", ")
		fmt.Fprintf(&b, "<h2>%s <small>%s: %s</small></h2>\n<div class=\"chart\">\n%s</div>\n",
			text(run.Name), text(caption), text(verdict), p.draw(&run))
	}
	b.WriteString("</html>\n")
	return b.String()
}

// Colours that can be read on a light and on a dark page.
const (
	grey  = "#7d8590"
	blue  = "#3b82d6"
	green = "#2da44e"
	red   = "#e5484d"
)

const fonts = "ui-sans-serif,system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"

// canvas is a drawing that grows downwards. Coordinates have one decimal.
type canvas struct {
	strings.Builder
	y float64
}

func num(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

func (c *canvas) text(x, y float64, attributes, text string) {
	fmt.Fprintf(c, `<text x="%s" y="%s" font-size="10" fill="%s"%s>%s</text>`+"\n", num(x), num(y), grey, attributes, html.EscapeString(text))
}

// picture is the layout of a drawing.
type picture struct {
	plot float64 // the width of the time
	lane float64 // the height of a row
}

const (
	left      = 100 // the width of the names
	right     = 10
	curve     = 70 // the height of the stock
	thin      = .5 // the least width at which something can be seen
	visible   = 4  // the least width of a span that must not be overlooked
	alignment = ` text-anchor="end"`
)

// draw draws the lanes, and below them the stock.
func (p *picture) draw(r *Run) string {
	c := &canvas{y: 8}
	scale := func(at time.Duration) float64 {
		return left + p.plot*min(1, max(0, float64(at)/float64(max(r.Length, 1))))
	}
	overlaps := Overlaps(r.Spans)
	for lane, name := range r.Lanes {
		p.lanes(c, r.sorted(lane), name, overlaps, scale)
	}
	c.y += 6
	p.stock(c, r, scale)
	c.text(left, c.y+13, "", "0 s")
	c.text(left+p.plot, c.y+13, alignment, fmt.Sprintf("%.1f s", r.Length.Seconds()))
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" font-family="%[3]s">`+"\n%s</svg>\n",
		num(left+p.plot+right), num(c.y+30), fonts, c.String())
}

// lanes draws one lane: green where a process is alone, red where it is not.
func (p *picture) lanes(c *canvas, spans []Span, name string, overlaps []Interval, scale func(time.Duration) float64) {
	rows, height := stack(spans)
	h := p.lane * float64(height)
	fmt.Fprintf(c, `<rect x="%d" y="%s" width="%s" height="%s" fill="%s" opacity=".13"/>`+"\n", left, num(c.y), num(p.plot), num(h), grey)
	c.text(left-8, c.y+h/2+4, alignment, name)
	width := p.lane
	if height > 1 {
		width--
	}
	var together strings.Builder
	for i, s := range spans {
		from, to, y := scale(s.From), scale(s.To), num(c.y+p.lane*(float64(rows[i])+.5))
		if s.Kind == Late { // must be visible at the end of the picture
			from = min(from, to-visible)
		}
		fmt.Fprintf(c, `<path d="M%s %sh%s" stroke="%s" stroke-width="%s"><title>%s</title></path>`+"\n",
			num(from), y, num(max(to-from, thin)), colourOf[s.Kind], num(width), html.EscapeString(s.Label))
		for _, part := range s.common(overlaps) {
			fmt.Fprintf(&together, "M%s %sh%s", num(scale(part.From)), y, num(max(scale(part.To)-scale(part.From), thin)))
		}
	}
	if together.Len() > 0 {
		fmt.Fprintf(c, `<path d="%s" stroke="%s" stroke-width="%s" pointer-events="none"/>`+"\n", &together, red, num(width))
	}
	c.y += h + 2
}

var colourOf = map[Kind]string{Inside: green, Paused: grey, Late: red}

// stock draws how the stock falls, and what is below zero in red.
func (p *picture) stock(c *canvas, r *Run, scale func(time.Duration) float64) {
	unit := curve / float64(max(1, r.Stock, len(r.Sales))) // from the stock to what is left, or zero
	zero := c.y + float64(r.Stock)*unit
	above, below := &strings.Builder{}, &strings.Builder{}
	fmt.Fprintf(above, "M%s %sV%s", num(left), num(zero), num(c.y))
	rest := r.Stock
	for _, at := range r.Sales {
		rest--
		d := above
		if rest < 0 {
			d = below
			if d.Len() == 0 {
				fmt.Fprintf(d, "M%s %s", num(scale(at)), num(zero))
			}
		}
		fmt.Fprintf(d, "H%sV%s", num(scale(at)), num(zero-float64(rest)*unit))
	}
	end := num(left + p.plot)
	if rest > 0 {
		fmt.Fprintf(above, "H%sV%s", end, num(zero))
	}
	fmt.Fprintf(c, `<path d="%sz" fill="%s" opacity=".45"/>`+"\n", above, blue)
	if below.Len() > 0 {
		fmt.Fprintf(c, `<path d="%sH%sV%sz" fill="%s" stroke="%[4]s"/>`+"\n", below, end, num(zero), red)
	}
	fmt.Fprintf(c, `<path d="M%s %sH%s" stroke="%s"/>`+"\n", num(left), num(zero), end, grey)
	c.text(left-8, c.y+10, alignment, strconv.Itoa(r.Stock)+" "+cmp.Or(r.Of, "in stock"))
	c.text(left-8, zero+3, alignment, "0")
	c.y += curve
}

type legendEntry struct{ colour, text string }

// legend returns what the colours mean: in runs with a pause red is late, otherwise together.
func legend(runs []Run) []legendEntry {
	of := "in stock"
	for _, run := range runs {
		of = cmp.Or(run.Of, of)
		if slices.ContainsFunc(run.Spans, func(s Span) bool { return s.Kind == Paused }) {
			return []legendEntry{{green, "holds the lock"}, {grey, "stopped"}, {red, "goes on without its lock"}, {blue, of}}
		}
	}
	return []legendEntry{{green, "alone"}, {red, "together with another"}, {blue, of}}
}
