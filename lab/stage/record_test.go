package stage

import (
	"slices"
	"testing"
	"time"
)

func TestOverlaps(t *testing.T) {
	t.Parallel()
	hold := func(process string, from, to time.Duration) *Hold { return &Hold{Process: process, From: from, To: to} }
	for name, c := range map[string]struct {
		holds []*Hold
		want  []Span
		most  int
	}{
		"no process":            {},
		"one after the other":   {[]*Hold{hold("A", 0, 10), hold("B", 10, 20), hold("A", 20, 30)}, nil, 1},
		"two processes":         {[]*Hold{hold("A", 0, 10), hold("B", 5, 20)}, []Span{{From: 5, To: 10}}, 2},
		"two of one process":    {[]*Hold{hold("A", 0, 10), hold("A", 5, 20)}, nil, 2},
		"two visits":            {[]*Hold{{Process: "A", From: 0, To: 10, Text: "sold"}, {Process: "A", From: 5, To: 20, Text: "sold"}}, []Span{{From: 5, To: 10}}, 2},
		"one within another":    {[]*Hold{hold("A", 0, 30), hold("B", 10, 20)}, []Span{{From: 10, To: 20}}, 2},
		"three":                 {[]*Hold{hold("A", 0, 30), hold("B", 10, 20), hold("C", 15, 40)}, []Span{{From: 10, To: 30}}, 3},
		"twice":                 {[]*Hold{hold("A", 0, 100), hold("B", 10, 20), hold("B", 30, 40)}, []Span{{From: 10, To: 20}, {From: 30, To: 40}}, 2},
		"one relieves another":  {[]*Hold{hold("A", 0, 100), hold("B", 10, 20), hold("C", 20, 30)}, []Span{{From: 10, To: 30}}, 2},
		"two, and then another": {[]*Hold{hold("A", 0, 20), hold("A", 5, 20), hold("B", 15, 30)}, []Span{{From: 15, To: 20}}, 3},
		"no time at all":        {[]*Hold{hold("A", 0, 10), hold("B", 5, 5)}, nil, 1},
		"in any order":          {[]*Hold{hold("B", 5, 20), hold("A", 0, 10)}, []Span{{From: 5, To: 10}}, 2},
	} {
		r := &Record{Holds: c.holds}
		if got := r.Overlaps(); !slices.Equal(got, c.want) {
			t.Errorf("%s: overlaps %v, want %v", name, got, c.want)
		}
		if got := r.AtOnce(); got != c.most {
			t.Errorf("%s: %d at once, want %d", name, got, c.most)
		}
	}
}
