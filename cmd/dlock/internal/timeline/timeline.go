// Package timeline draws who was inside when, and where two were at once.
package timeline

import (
	"cmp"
	"slices"
	"time"
)

// Span is a stay inside.
type Span struct {
	Lane     int // of whom
	From, To time.Duration
	Kind     Kind
	Label    string // what somebody who points at it sees
}

// Kind is what a span means.
type Kind int

// The kinds of spans. Only those that are inside can be there together.
const (
	Inside Kind = iota
	Paused      // stopped, and not inside
	Late        // it goes on although it should not
)

// Interval is from one instant to another.
type Interval struct{ From, To time.Duration }

// Overlaps are the times at which more than one was inside, in order. Who comes in
// the instant in which another leaves does not overlap.
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

// Most is how many were inside at once.
func Most(spans []Span) int {
	most := 0
	sweep(spans, func(_ time.Duration, _, after int) { most = max(most, after) })
	return most
}

// sweep tells how many are inside before and after each coming and going.
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

// common are the parts of a span that are in the intervals, which are in order.
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

// stack gives each span of a lane a row in which it meets no other, and returns how
// many rows that takes. The spans are sorted by From.
func stack(spans []Span) (rows []int, height int) {
	var free []time.Duration // when each row is
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

// Run is one run of something that counts down while some are inside.
type Run struct {
	Name    string
	Caption string
	Verdict string // what came of it, in a few words
	Bad     bool   // whether that is bad

	Lanes  []string // their names
	Spans  []Span
	Stock  int             // where it begins
	Of     string          // what the stock is; empty: "in stock"
	Sales  []time.Duration // each takes one away
	Length time.Duration
}

// sorted returns the spans of a lane by the time they begin.
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

// lowest is where the stock ends.
func (r *Run) lowest() int { return min(0, r.Stock-len(r.Sales)) }
