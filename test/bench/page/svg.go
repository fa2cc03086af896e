package page

import (
	"fmt"
	"html/template"
	"strings"
)

// Role decides the colour of a subject.
type Role int

const (
	Peer  Role = iota // another library
	Dlock             // dlock as its users run it
	Part              // a part of dlock
	Floor             // the simplest commands that lock
)

// The colours are readable on white and on black. Peers that share a chart have
// different ones.
var (
	roleColours = map[Role]string{Dlock: "#2f81f7", Part: "#8ab4e8", Floor: "#8b949e"}
	peerColours = []string{"#d9730d", "#1a9e77", "#a371f7", "#d6487e", "#b59a00", "#5d8a2f"}
)

// colour returns the colour of the n-th peer, or that of the role.
func colour(role Role, n int) string {
	if c, ok := roleColours[role]; ok {
		return c
	}
	return peerColours[n%len(peerColours)]
}

// drawing collects the elements of a picture.
type drawing struct{ strings.Builder }

// add formats an element. Every %s is a text that add escapes.
func (d *drawing) add(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	fmt.Fprintf(d, format+"\n", args...)
}

// text writes a line of text that starts at x, or ends there.
func (d *drawing) text(x, y float64, class, anchor string, size float64, text string) {
	d.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s" font-size="%g">%s</text>`, x, y, class, anchor, size, text)
}

// inline returns a chart as an element of the page, which sets its colours.
func inline(c Chart) template.HTML {
	elements, height := c.Draw()
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %.0f" role="img">%s</svg>`, Width, height, elements)) //nolint:gosec // add escapes all texts
}

// Picture is a file of SVG with several charts in two columns.
type Picture []Drawn

// style of a picture on its own: it does not know whether it stands on white or
// on black.
const style = `<style>.ink{fill:#7d8590;font-weight:600}.faint{fill:#7d8590}.grid{stroke:#7d8590;opacity:.3}` +
	`.track{fill:#7d8590;opacity:.15}.spread{stroke:#24292f;stroke-width:1.2}.halo{stroke:#fff;stroke-width:3;opacity:.7}</style>`

// SVG returns the file.
func (p Picture) SVG() string {
	const gap, title, margin = 40, 26, 10
	var d drawing
	y := float64(margin)
	for i := 0; i < len(p); i += 2 {
		tallest := 0.0
		for column, c := range p[i:min(i+2, len(p))] {
			elements, height := c.Chart.Draw()
			x := float64(margin + column*(Width+gap))
			d.text(x, y+14, "ink", "start", 15, c.Title)
			fmt.Fprintf(&d, "<svg x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%.0f\">\n%s</svg>\n", x, y+title, Width, height, elements)
			tallest = max(tallest, height)
		}
		y += title + tallest + gap/2
	}
	const width = 2*margin + 2*Width + gap
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" `+
		`font-family="ui-sans-serif,system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif">`+"\n%s\n%s</svg>\n",
		width, y, width, y, style, d.String())
}
