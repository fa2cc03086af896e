package page

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/test/lab/stage"
)

// The measures of a timeline.
const (
	width    = 1000.0
	left     = 40.0 // of the time axis
	right    = width - 20
	noteTop  = 14.0
	noteStep = 13.0 // between the lines of notes
	laneStep = 34.0
	barTall  = 16.0
)

// drawing is a timeline in the making.
type drawing struct {
	strings.Builder
	record *stage.Record
	from   time.Duration
	top    float64 // of the first lane
}

// timeline draws who believed to have the lock and what happened, as an SVG element.
func timeline(r *stage.Record) string {
	if r == nil || len(r.Processes) == 0 {
		return ""
	}
	elements, height := draw(r)
	return fmt.Sprintf(`<svg viewBox="0 0 %.0f %.0f" role="img">%s</svg>`, width, height, elements)
}

// draw returns the elements of a timeline, and its height.
func draw(r *stage.Record) (elements string, height float64) {
	d := &drawing{record: r}
	if len(r.Events) > 0 {
		d.from = r.Events[0].At
	}
	var notes []stage.Event
	for _, e := range r.Events {
		if e.Kind == stage.Harm {
			notes = append(notes, e)
		}
	}
	d.top = noteTop + noteStep*float64(len(notes)) + 6
	lanes := len(r.Processes)
	if len(r.Server) > 0 {
		lanes++
	}
	bottom := d.top + laneStep*float64(lanes)
	for _, o := range r.Overlaps() {
		d.rect("overlap", o.From, o.To, d.top-4, bottom-d.top+4, "both "+o.Process+" believe to have the lock")
	}
	for i, e := range notes {
		d.note(e, noteTop+noteStep*float64(i), bottom)
	}
	for i, name := range r.Processes {
		d.lane(name, d.top+laneStep*float64(i))
	}
	if len(r.Server) > 0 {
		d.server(d.top + laneStep*float64(lanes-1))
	}
	d.axis(bottom)
	return d.String(), bottom + 22
}

// x is the place of a time.
func (d *drawing) x(at time.Duration) float64 {
	total := max(d.record.End-d.from, time.Millisecond)
	return left + (right-left)*float64(max(at-d.from, 0))/float64(total)
}

func (d *drawing) rect(class string, from, to time.Duration, y, height float64, title string) {
	x := d.x(from)
	fmt.Fprintf(d, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
		class, x, y, max(d.x(to)-x, 2), height, html.EscapeString(title))
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

// lane draws a process.
func (d *drawing) lane(name string, y float64) {
	r := d.record
	fmt.Fprintf(d, `<text class="name" x="8" y="%.1f">%s</text>`, y+barTall-3, html.EscapeString(name))
	fmt.Fprintf(d, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, right, y+barTall/2, y+barTall/2)
	for _, h := range r.Holds {
		if h.Process == name {
			d.rect("hold", h.From, h.To, y, barTall, fmt.Sprintf("%s believes to have the lock for %v", name, (h.To-h.From).Round(time.Millisecond)))
		}
	}
	for _, p := range r.Pauses {
		if p.Process == name {
			to := p.To
			if to == 0 {
				to = r.End
			}
			d.rect("pause", p.From, to, y, barTall, name+" is paused")
		}
	}
	for _, e := range slices.DeleteFunc(slices.Clone(r.Events), func(e stage.Event) bool { return e.Process != name }) {
		d.mark(e, y)
	}
}

// server draws what the server says.
func (d *drawing) server(y float64) {
	fmt.Fprintf(d, `<text class="tick" x="2" y="%.1f">server</text>`, y+barTall-4)
	for _, held := range d.record.Server {
		d.rect("said", held.From, held.To, y+4, barTall/2, "the server says that the lock is held")
	}
}

// mark draws an event of a process.
func (d *drawing) mark(e stage.Event, y float64) {
	var sign, title string
	class := "plain"
	switch {
	case e.Kind == stage.Wrote && e.Refused:
		sign, class, title = "✗", "refused", "the fence refuses the write"
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
		class, d.x(e.At), y+barTall+11, sign, html.EscapeString(title))
}

// axis draws the seconds.
func (d *drawing) axis(y float64) {
	total := d.record.End - d.from
	step := time.Second
	for total/step > 12 {
		step *= 2
	}
	if total < 2*time.Second {
		step = 200 * time.Millisecond
	}
	for at := time.Duration(0); at <= total; at += step {
		fmt.Fprintf(d, `<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%v</text>`, d.x(at+d.from), y+16, at)
	}
}
