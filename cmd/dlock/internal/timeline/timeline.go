// Package timeline draws when processes were inside a critical section.
package timeline

import (
	"cmp"
	"slices"
	"time"
)

// Span is the time that a process was inside.
type Span struct {
	Lane     int // of the process
	From, To time.Duration
	Kind     Kind
	Label    string // shown when the mouse points at it
}

// Kind is the meaning of a span.
type Kind int

// The kinds of spans. Only spans of kind Inside can overlap.
const (
	Inside Kind = iota
	Paused      // the process is stopped
	Late        // the process goes on without its lock
)

// Interval is the time between two instants.
type Interval struct{ From, To time.Duration }

// Overlaps returns the times at which several spans were inside, in order. A span that
// begins in the instant in which another ends does not overlap it.
func Overlaps(spans []Span) []Interval {
	var found []Interval
	var since time.Duration
	sweep(spans, func(at time.Duration, before, after int) {
		switch {
		case before < 2 && after >= 2:
			since = at
		case before >= 2 && after < 2 && at > since:
			if last := len(found) - 1; last >= 0 && found[last].To == since {
				found[last].To = at
			} else {
				found = append(found, Interval{since, at})
			}
		}
	})
	return found
}

// Most returns how many spans were inside at once.
func Most(spans []Span) int {
	most := 0
	sweep(spans, func(_ time.Duration, _, after int) { most = max(most, after) })
	return most
}

// sweep calls changed with the number of spans before and after each begin and end.
func sweep(spans []Span, changed func(at time.Duration, before, after int)) {
	type change struct {
		at   time.Duration
		step int
	}
	var changes []change
	for _, s := range spans {
		if s.To > s.From && s.Kind == Inside {
			changes = append(changes, change{s.From, 1}, change{s.To, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.step-b.step) })
	inside := 0
	for _, c := range changes {
		changed(c.at, inside, inside+c.step)
		inside += c.step
	}
}

// common returns the parts of a span that are in the intervals, which are in order.
func (s Span) common(intervals []Interval) []Interval {
	if s.Kind != Inside {
		return nil
	}
	var parts []Interval
	first, _ := slices.BinarySearchFunc(intervals, s.From, func(i Interval, from time.Duration) int { return cmp.Compare(i.To, from) })
	for _, i := range intervals[first:] {
		if i.From >= s.To {
			break
		}
		if part := (Interval{max(i.From, s.From), min(i.To, s.To)}); part.To > part.From {
			parts = append(parts, part)
		}
	}
	return parts
}

// stack gives each span of a lane a row in which it overlaps no other, and returns the
// number of rows. The spans are sorted by From.
func stack(spans []Span) (rows []int, height int) {
	var free []time.Duration // when each row becomes free
	for _, s := range spans {
		row := slices.IndexFunc(free, func(at time.Duration) bool { return at <= s.From })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}
		free[row] = s.To
		rows = append(rows, row)
	}
	return rows, max(1, len(free))
}

// Run is one run of a scenario in which a stock falls while processes are inside.
type Run struct {
	Name    string
	Caption string
	Verdict string // the outcome in a few words
	Bad     bool   // the outcome is bad

	Lanes  []string // their names
	Spans  []Span
	Stock  int             // at the begin
	Of     string          // what the stock is
	Sales  []time.Duration // each reduces the stock by one
	Length time.Duration
}

func (r *Run) sorted(lane int) []Span {
	var spans []Span
	for _, s := range r.Spans {
		if s.Lane == lane {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	return spans
}
