package page

import "math"

// Bars is a chart with a bar for each subject. The scale begins at zero.
type Bars []Bar

// Bar is a subject.
type Bar struct {
	Subject          string
	Role             Role
	Value, Low, High float64 // Low and High are equal if there is no spread
	Shown            string  // the value with its unit
	Note             string  // stands beside the subject
	Failure          string  // in place of a value
}

// Draw returns two lines for each subject: its text, and its bar with a mark for
// the spread.
func (bars Bars) Draw() (elements string, height float64) {
	const row, thick = 30, 9
	top := 0.0
	for _, b := range bars {
		top = max(top, b.Value, b.High)
	}
	at := func(value float64) float64 {
		if top == 0 || math.IsNaN(value) {
			return 0
		}
		return value / top * (Width - 2)
	}
	var d drawing
	for i, b := range bars {
		y := float64(i * row)
		class := "faint"
		if b.Role == Dlock {
			class = "ink"
		}
		if b.Failure != "" {
			d.text(0, y+12, class, "start", 12, b.Subject)
			d.text(Width, y+12, "faint", "end", 11, "failed: "+shorten(b.Failure, 36))
			d.add(`<rect x="0" y="%.1f" width="%d" height="%d" class="track"/>`, y+16, Width, thick)
			continue
		}
		d.add(`<text x="0" y="%.1f" class="%s" font-size="12">%s<tspan class="faint" dx="8" font-size="10.5" font-weight="400">%s</tspan></text>`,
			y+12, class, b.Subject, b.Note)
		d.text(Width, y+12, class, "end", 12, b.Shown)
		d.add(`<rect x="0" y="%.1f" width="%d" height="%d" class="track"/>`, y+16, Width, thick)
		d.add(`<rect x="0" y="%.1f" width="%.1f" height="%d" fill="%s"/>`, y+16, at(b.Value), thick, colour(b.Role, 0))
		if b.High > b.Low {
			for _, class := range []string{"halo", "spread"} { // the halo sets the mark off from bars of any colour
				d.add(`<path d="M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6" class="%s" fill="none"/>`,
					at(b.Low), y+20.5, at(b.High), at(b.Low), y+17.5, at(b.High), y+17.5, class)
			}
		}
	}
	return d.String(), float64(len(bars) * row)
}

// shorten cuts a long text.
func shorten(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}
