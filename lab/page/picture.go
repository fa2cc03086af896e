package page

import (
	"fmt"
	"html"
	"strings"

	"github.com/dlock-go/dlock/lab/subject"
)

// pictureStyle are the colours of a picture that stands alone, on a light and a dark page.
const pictureStyle = `<style>
svg { --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --good: #1a7f37; --bad: #cf222e; --hold: #6cb6ff; --pause: #8b949e; font: 11px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --faint: #9198a1; --line: #30363d; --good: #3fb950; --bad: #ff7b72; --hold: #1f6feb; --pause: #6e7681; } }
.head { font-size: 14px; font-weight: 650; fill: var(--ink); } .bad { fill: var(--bad); } .good { fill: var(--good); } .fair { fill: var(--faint); }
` + style + `</style>`

// Picture draws the timelines of stories with the mistake and with dlock, as an SVG file.
func Picture(stories ...Story) string {
	const headTall = 24.0
	var b strings.Builder
	y := 0.0
	var results []Result
	for _, story := range stories {
		results = append(results, story.Results...)
	}
	for _, r := range results {
		if r.Role == subject.Peer || r.Record == nil {
			continue
		}
		elements, tall := draw(r.Record, false)
		y += headTall
		fmt.Fprintf(&b, `<text class="head" x="8" y="%.0f">%s: <tspan class="%s">%s</tspan></text>`, y-6, html.EscapeString(r.Subject), r.Class(), html.EscapeString(r.Says()))
		fmt.Fprintf(&b, `<svg x="0" y="%.0f" width="%.0f" height="%.0f">%s</svg>`, y, width, tall, elements)
		y += tall + 8
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\">%s%s</svg>\n", width, y, pictureStyle, b.String())
}
