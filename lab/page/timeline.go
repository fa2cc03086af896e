package page

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
)

// The measures of a timeline.
const (
	width    = 1000.0
	left     = 40.0 // of the time axis
	right    = width - 20
	noteTop  = 14.0
	noteStep = 13.0 // between the lines of notes
	laneGap  = 4.0  // between the bars of two processes
	markTall = 14.0 // of the marks below a process
	barTall  = 16.0
	rowTall  = 6.0 // of a bar where the holds of a process overlap
	curve    = 60.0
	curveGap = 16.0 // above the curve, for its text
)

// style colours a timeline by the variables of the page.
const style = `.name { font-weight: 650; font-size: 13px; fill: var(--ink); } .tick, .note { fill: var(--faint); } .plain { fill: var(--faint); font-size: 12px; }
.wrote { fill: var(--good); font-size: 13px; } .stale { fill: var(--bad); font-size: 13px; } .refused { fill: var(--bad); font-weight: 700; font-size: 13px; }
.grid { stroke: var(--line); } .harm { stroke: var(--faint); stroke-dasharray: 2 3; } .hold { fill: var(--hold); } .holds { stroke: var(--hold); stroke-width: 16px; } .said { fill: var(--faint); opacity: .6; } .pause { fill: var(--pause); opacity: .85; } .overlap { fill: var(--bad); opacity: .3; } .stock { fill: var(--good); opacity: .4; } .short { fill: var(--bad); }
`

// drawing is a timeline in the making.
type drawing struct {
	strings.Builder
	record   *stage.Record
	detail   bool // each hold by itself, with its text
	from, to time.Duration
}

// timeline draws who believed to have the lock and what happened, as an SVG element.
func timeline(r *stage.Record) string {
	if r == nil || len(r.Processes) == 0 {
		return ""
	}
	elements, height := draw(r, true)
	return fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img">%s</svg>`, width, height, elements)
}

// draw returns the elements of a timeline, and its height.
func draw(r *stage.Record, detail bool) (elements string, height float64) {
	d := &drawing{record: r, detail: detail, to: r.End}
	if len(r.Events) > 0 {
		d.from = r.Events[0].At
	} else if len(r.Holds) > 0 { // of programs
		d.from = slices.MinFunc(r.Holds, func(a, b *stage.Hold) int { return cmp.Compare(a.From, b.From) }).From
		d.to = slices.MaxFunc(r.Holds, func(a, b *stage.Hold) int { return cmp.Compare(a.To, b.To) }).To
	}
	var notes []stage.Event
	for _, e := range r.Events {
		if e.Kind == stage.Harm {
			notes = append(notes, e)
		}
	}
	top := noteTop + noteStep*float64(len(notes)) + 6
	bottom := top
	var lanes drawing
	lanes, d.Builder = *d, strings.Builder{}
	gap := laneGap
	if len(r.Events) > 0 {
		gap += markTall
	}
	for _, name := range r.Processes {
		bottom += lanes.lane(name, bottom) + gap
	}
	if len(r.Server) > 0 {
		lanes.server(bottom)
		bottom += barTall + gap
	}
	for _, o := range r.Overlaps() {
		d.rect("overlap", o.From, o.To, top-4, bottom-top+4, "several processes believe to have the lock")
	}
	for i, e := range notes {
		d.note(e, noteTop+noteStep*float64(i), bottom)
	}
	d.WriteString(lanes.String())
	if r.Stock != nil {
		d.stock(bottom + curveGap)
		bottom += curveGap + curve
	}
	d.axis(bottom)
	return d.String(), bottom + 22
}

// x is the place of a time.
func (d *drawing) x(at time.Duration) float64 {
	total := max(d.to-d.from, time.Millisecond)
	return left + (right-left)*float64(min(max(at-d.from, 0), total))/float64(total)
}

func (d *drawing) rect(class string, from, to time.Duration, y, height float64, title string) {
	x := d.x(from)
	fmt.Fprintf(d, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f">`, class, x, y, max(d.x(to)-x, d.least()), height)
	if d.detail {
		fmt.Fprintf(d, `<title>%s</title>`, html.EscapeString(title))
	}
	d.WriteString(`</rect>`)
}

// least is the least width of a bar: it can be seen, and does not hide its neighbours.
func (d *drawing) least() float64 {
	if d.record.Stock != nil {
		return .5
	}
	return 2
}

// note writes what the experiment did, with a line down through the lanes.
func (d *drawing) note(e stage.Event, y, bottom float64) {
	x := d.x(e.At)
	anchor, text := "start", x+4
	if x > width/2 {
		anchor, text = "end", x-4
	}
	fmt.Fprintf(d, `<line class="harm" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="note" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`,
		x, x, y-8, bottom, text, y, anchor, html.EscapeString(e.Text))
}

// lane draws a process, and returns the height of its bars.
func (d *drawing) lane(name string, y float64) float64 {
	r := d.record
	var holds []*stage.Hold
	for _, h := range r.Holds {
		if h.Process == name {
			holds = append(holds, h)
		}
	}
	slices.SortStableFunc(holds, func(a, b *stage.Hold) int { return cmp.Compare(a.From, b.From) })
	tall := barTall
	rows, n := stack(holds)
	row := tall / float64(n)
	if d.detail && n > 1 {
		row = max(row, rowTall)
		tall = row * float64(n)
	}
	fmt.Fprintf(d, `<text class="name" x="8" y="%.1f">%s</text>`, y+tall/2+5, html.EscapeString(name))
	fmt.Fprintf(d, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, right, y+tall/2, y+tall/2)
	if !d.detail {
		d.bars(holds, y+tall/2)
		holds = nil
	}
	for i, h := range holds {
		d.rect("hold", h.From, h.To, y+row*float64(rows[i]), row, d.says(h))
	}
	for _, p := range r.Pauses {
		if p.Process == name {
			to := p.To
			if to == 0 {
				to = r.End
			}
			d.rect("pause", p.From, to, y, tall, name+" is paused")
		}
	}
	for _, e := range r.Events {
		if e.Process == name {
			d.mark(e, y+tall)
		}
	}
	return tall
}

// says describes a hold.
func (d *drawing) says(h *stage.Hold) string {
	if h.Text == "" {
		return fmt.Sprintf("%s believes to have the lock for %v", h.Process, (h.To - h.From).Round(time.Millisecond))
	}
	text := fmt.Sprintf("process %s, %.3f s to %.3f s, %s", h.Process, (h.From - d.from).Seconds(), (h.To - d.from).Seconds(), h.Text)
	if h.Token > 0 {
		text += fmt.Sprintf(", token %d", h.Token)
	}
	return text
}

// bars draws holds, in the order of their begin, as one path. Holds that touch become one line.
func (d *drawing) bars(holds []*stage.Hold, y float64) {
	var path strings.Builder
	from, to := 0.0, -1.0
	flush := func() {
		if to >= 0 {
			fmt.Fprintf(&path, "M%.1f %.0fh%.1f", from, y, to-from)
		}
	}
	for _, h := range holds {
		begin, end := d.x(h.From), max(d.x(h.To), d.x(h.From)+d.least())
		if begin > to+.3 {
			flush()
			from = begin
		}
		to = max(to, end)
	}
	flush()
	fmt.Fprintf(d, `<path class="holds" d="%s"/>`, path.String())
}

// stack gives each hold of a process a row in which it overlaps no other, and returns the number of
// rows. The holds are in the order of their begin.
func stack(holds []*stage.Hold) (rows []int, n int) {
	var free []time.Duration // when each row becomes free
	for _, h := range holds {
		row := slices.IndexFunc(free, func(at time.Duration) bool { return at <= h.From })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		free[row] = h.To
		rows = append(rows, row)
	}
	return rows, max(1, len(free))
}

// server draws what the server says.
func (d *drawing) server(y float64) {
	fmt.Fprintf(d, `<text class="tick" x="2" y="%.1f">server</text>`, y+barTall-4)
	for _, held := range d.record.Server {
		d.rect("said", held.From, held.To, y+4, barTall/2, "the server says that the lock is held")
	}
}

// stock draws how the stock falls, and what is below zero in red.
func (d *drawing) stock(y float64) {
	s := d.record.Stock
	unit := (curve - 4) / float64(max(1, s.Begin, len(s.Falls))) // from the stock to what is left, or zero
	zero := y + float64(s.Begin)*unit
	above, below := &strings.Builder{}, &strings.Builder{}
	fmt.Fprintf(above, "M%.1f %.1fV%.1f", left, zero, y)
	for i, at := range s.Falls {
		path, now := above, s.Begin-i-1
		if now < 0 {
			path = below
			if path.Len() == 0 {
				fmt.Fprintf(path, "M%.1f %.1f", d.x(at), zero)
			}
		}
		fmt.Fprintf(path, "H%.1fV%.1f", d.x(at), zero-float64(now)*unit)
	}
	if s.Begin > len(s.Falls) {
		fmt.Fprintf(above, "H%.1fV%.1f", right, zero)
	}
	fmt.Fprintf(d, `<path class="stock" d="%sz"/>`, above)
	if below.Len() > 0 {
		fmt.Fprintf(d, `<path class="short" d="%sH%.1fV%.1fz"/>`, below, right, zero)
	}
	fmt.Fprintf(d, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, right, zero, zero)
	left := strings.Replace(strconv.Itoa(s.Begin-len(s.Falls)), "-", "\u2212", 1)
	fmt.Fprintf(d, `<text class="tick" x="%.1f" y="%.1f" text-anchor="end">%s: %d at first, %s at the end</text>`,
		right, y-curveGap/4, html.EscapeString(s.Of), s.Begin, left)
}

// mark draws an event of a process below its bars.
func (d *drawing) mark(e stage.Event, y float64) {
	var sign, title string
	class := "plain"
	switch {
	case e.Kind == stage.Wrote && e.Refused:
		sign, class, title = "✗", "refused", "the fence refuses the write"
	case e.Kind == stage.Wrote && e.Stale:
		sign, class, title = "●", "stale", "writes over what another process wrote"
	case e.Kind == stage.Wrote:
		sign, class, title = "●", "wrote", "writes the account"
	case e.Kind == stage.Withheld:
		sign, title = "○", "does not write: it knows that it has lost the lock"
	case e.Kind == stage.Failed:
		sign, title = "✗", e.Text
	default:
		return
	}
	if e.Token > 0 {
		title += fmt.Sprintf(" with token %d", e.Token)
	}
	fmt.Fprintf(d, `<text class="%s" x="%.1f" y="%.1f" text-anchor="middle">%s<title>%s</title></text>`,
		class, d.x(e.At), y+11, sign, html.EscapeString(title))
}

// axis draws the seconds.
func (d *drawing) axis(y float64) {
	total := d.to - d.from
	step := 10 * time.Millisecond
	for i := 0; total/step > 10; i++ { // 10, 20, 50, 100
		step = step * []time.Duration{4, 5, 4}[i%3] / 2
	}
	for at := time.Duration(0); at <= total; at += step {
		fmt.Fprintf(d, `<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%v</text>`, d.x(at+d.from), y+16, at)
	}
}
