package timeline

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

func (c *canvas) text(x, y float64, size int, colour, attributes, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(c, `<text x="%s" y="%s" font-size="%d" fill="%s"%s>%s</text>`+"\n",
		num(x), num(y), size, colour, attributes, html.EscapeString(text))
}

func (c *canvas) lines(x, y float64, text string) {
	for line := range strings.Lines(text) {
		c.text(x, y, 11, grey, "", strings.TrimSpace(line))
		y += 14
	}
}

type picture struct {
	left, plot, right float64 // widths: names, time, verdicts
	lane              float64 // height of a row
	curve             float64 // height of the stock
	detail            bool    // each span by itself, with its label
}

// SVG draws one run or more, one below the other, small enough for a document.
func SVG(runs []Run) string {
	return (&picture{left: 130, plot: 560, right: 150, lane: 8, curve: 40}).draw(runs)
}

func (p *picture) draw(runs []Run) string {
	c := &canvas{y: 8}
	for i := range runs {
		p.run(c, &runs[i])
	}
	if !p.detail {
		p.legend(c, runs)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" font-family="%[3]s">`+"\n%s</svg>\n",
		num(p.left+p.plot+p.right), num(c.y), fonts, c.String())
}

func (p *picture) run(c *canvas, r *Run) {
	top := c.y
	scale := func(at time.Duration) float64 {
		return p.left + p.plot*min(1, max(0, float64(at)/float64(max(r.Length, 1))))
	}
	overlaps := Overlaps(r.Spans)
	for lane, name := range r.Lanes {
		p.lanes(c, r.sorted(lane), name, overlaps, scale)
	}
	c.y += 6
	p.stock(c, r, scale)
	c.text(p.left, c.y+13, 10, grey, "", "0 s")
	c.text(p.left+p.plot, c.y+13, 10, grey, ` text-anchor="end"`, fmt.Sprintf("%.1f s", r.Length.Seconds()))
	verdict := green
	if r.Bad {
		verdict = red
	}
	c.text(0, top+14, 15, grey, ` font-weight="700"`, r.Name)
	c.lines(0, top+30, r.Caption)
	x := p.left + p.plot + 14
	first, rest, _ := strings.Cut(r.Verdict, "\n")
	c.text(x, top+22, 22, verdict, ` font-weight="700"`, first)
	c.lines(x, top+40, rest)
	c.y += 30
}

// lanes draws one lane: green where a process is alone, red where it is not.
func (p *picture) lanes(c *canvas, spans []Span, name string, overlaps []Interval, scale func(time.Duration) float64) {
	rows, height := make([]int, len(spans)), 1
	if p.detail {
		rows, height = stack(spans)
	}
	h := p.lane * float64(height)
	fmt.Fprintf(c, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s" opacity=".13"/>`+"\n", num(p.left), num(c.y), num(p.plot), num(h), grey)
	if p.detail {
		c.text(p.left-8, c.y+h/2+4, 11, grey, ` text-anchor="end"`, name)
	}
	middle := func(row int) float64 { return c.y + p.lane*(float64(row)+.5) }
	width := p.lane
	if height > 1 {
		width--
	}
	lines := map[string]*strokes{grey: {}, green: {}, red: {}}
	for i, s := range spans {
		from, to, y := scale(s.From), scale(s.To), middle(rows[i])
		if s.Kind == Late { // must be visible at the end of the picture
			from = min(from, to-visible)
		}
		if p.detail {
			fmt.Fprintf(c, `<path d="M%s %sh%s" stroke="%s" stroke-width="%s"><title>%s</title></path>`+"\n",
				num(from), num(y), num(max(to-from, thin)), colourOf[s.Kind], num(width), html.EscapeString(s.Label))
		} else {
			lines[colourOf[s.Kind]].add(from, to, y)
		}
		for _, part := range s.common(overlaps) {
			lines[red].add(scale(part.From), scale(part.To), y)
		}
	}
	for _, colour := range []string{grey, green, red} {
		lines[colour].draw(c, colour, width)
	}
	c.y += h + 2
}

var colourOf = map[Kind]string{Inside: green, Paused: grey, Late: red}

const (
	thin    = .5 // the least width at which something can be seen
	visible = 4  // the least width of a span that must not be overlooked
)

// strokes are horizontal lines that become one path. They are added in the order in which
// they begin, and lines of a row that touch become one.
type strokes []stroke

type stroke struct{ from, to, y float64 }

func (s *strokes) add(from, to, y float64) {
	to = max(to, from+thin)
	for i, last := range slices.Backward(*s) {
		if last.y == y && from <= last.to+thin/2 {
			(*s)[i].to = max(to, last.to)
			return
		}
		if last.y == y {
			break
		}
	}
	*s = append(*s, stroke{from, to, y})
}

func (s *strokes) draw(c *canvas, colour string, width float64) {
	if len(*s) == 0 {
		return
	}
	var d strings.Builder
	for _, l := range *s {
		d.WriteString("M" + num(l.from) + " " + num(l.y) + "h" + num(l.to-l.from))
	}
	fmt.Fprintf(c, `<path d="%s" stroke="%s" stroke-width="%s" pointer-events="none"/>`+"\n", d.String(), colour, num(width))
}

// stock draws how the stock falls, and what is below zero in red.
func (p *picture) stock(c *canvas, r *Run, scale func(time.Duration) float64) {
	unit := p.curve / float64(max(1, r.Stock, len(r.Sales))) // from the stock to what is left, or zero
	zero := c.y + float64(r.Stock)*unit
	above, below := &strings.Builder{}, &strings.Builder{}
	fmt.Fprintf(above, "M%s %sV%s", num(p.left), num(zero), num(c.y))
	left := r.Stock
	for _, at := range r.Sales {
		left--
		d := above
		if left < 0 {
			d = below
			if d.Len() == 0 {
				fmt.Fprintf(d, "M%s %s", num(scale(at)), num(zero))
			}
		}
		fmt.Fprintf(d, "H%sV%s", num(scale(at)), num(zero-float64(left)*unit))
	}
	end := num(p.left + p.plot)
	if left > 0 {
		fmt.Fprintf(above, "H%sV%s", end, num(zero))
	}
	fmt.Fprintf(c, `<path d="%sz" fill="%s" opacity=".45"/>`+"\n", above, blue)
	if below.Len() > 0 {
		fmt.Fprintf(c, `<path d="%sH%sV%sz" fill="%s" stroke="%[4]s"/>`+"\n", below, end, num(zero), red)
	}
	fmt.Fprintf(c, `<path d="M%s %sH%s" stroke="%s"/>`+"\n", num(p.left), num(zero), end, grey)
	c.text(p.left-8, c.y+10, 10, grey, ` text-anchor="end"`, strconv.Itoa(r.Stock)+" "+r.Of)
	c.text(p.left-8, zero+3, 10, grey, ` text-anchor="end"`, "0")
	c.y += p.curve
}

func (p *picture) legend(c *canvas, runs []Run) {
	x := p.left
	for _, entry := range legend(runs, "alone inside", "inside together with another, and what was sold without being there",
		"without its lock, and what was sold without being there") {
		fmt.Fprintf(c, `<rect x="%s" y="%s" width="10" height="10" fill="%s"/>`+"\n", num(x), num(c.y), entry.colour)
		c.text(x+15, c.y+9, 11, grey, "", entry.text)
		x += 34 + 6*float64(len(entry.text))
	}
	c.y += 18
}

type legendEntry struct{ colour, text string }

// legend returns what the colours mean: in runs with a pause red is late, otherwise together.
func legend(runs []Run, alone, together, late string) []legendEntry {
	for _, run := range runs {
		if slices.ContainsFunc(run.Spans, func(s Span) bool { return s.Kind == Paused }) {
			return []legendEntry{{green, "holds the lock"}, {grey, "stopped"}, {red, late}, {blue, run.Of}}
		}
	}
	return []legendEntry{{green, alone}, {red, together}, {blue, runs[0].Of}}
}
