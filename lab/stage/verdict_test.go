package stage

import (
	"slices"
	"testing"
	"time"
)

func hold(process string, from, to time.Duration) *Hold {
	return &Hold{Process: process, From: from, To: to}
}

// TestVerdict: what happened decides the verdict.
func TestVerdict(t *testing.T) {
	t.Parallel()
	type write struct { // what a process read before, and its token
		read  int
		token uint64
	}
	turns := []*Hold{hold("A", 0, 10), hold("B", 10, 20)}
	overlap := []*Hold{hold("A", 0, 30), hold("B", 10, 40)}
	for name, c := range map[string]struct {
		holds  []*Hold
		pauses []Span
		writes []write
		stuck  bool
		want   Verdict
	}{
		"one after the other":                {holds: turns, writes: []write{{0, 1}, {1, 2}}, want: Held},
		"at the same time":                   {holds: overlap, writes: []write{{0, 0}, {1, 0}}, want: TwoHolders},
		"at the same time, with the fence":   {holds: overlap, writes: []write{{0, 2}, {0, 1}}, want: TwoFenced},
		"a fence that does not refuse":       {holds: overlap, writes: []write{{0, 1}, {0, 1}}, want: TwoHolders},
		"while the other is paused":          {holds: overlap, pauses: []Span{{"A", 5, 30}}, writes: []write{{0, 0}, {1, 0}}, want: Held},
		"after a pause of the other":         {holds: overlap, pauses: []Span{{"A", 5, 20}}, want: TwoHolders},
		"a pause that never ends":            {holds: overlap, pauses: []Span{{"A", 5, 0}}, want: Held},
		"a stale write without a token":      {holds: turns, writes: []write{{0, 0}, {0, 0}}, want: Accepted},
		"a stale write with a token":         {holds: turns, writes: []write{{0, 2}, {0, 1}}, want: Refused},
		"a stale write with an equal token":  {holds: turns, writes: []write{{0, 1}, {0, 1}}, want: Accepted},
		"a process that never gets its turn": {stuck: true, want: Stuck},
	} {
		st := &Stage{record: &Record{Holds: c.holds, Pauses: c.pauses}, stuck: c.stuck}
		st.Account.Fenced.fenced = true
		for i, w := range c.writes {
			_, stale := st.Account.write(balances{w.read, w.read}, w.token)
			if want := i > 0 && w.read == 0 && c.want != TwoFenced && c.want != Refused; stale != want {
				t.Errorf("%s: write %d is stale: %v, want %v", name, i, stale, want)
			}
		}
		if got := st.verdict(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holds []*Hold
		want  []Span
		most  int
	}{
		"no process":            {},
		"one after the other":   {[]*Hold{hold("A", 0, 10), hold("B", 10, 20), hold("A", 20, 30)}, nil, 1},
		"two of one process":    {[]*Hold{hold("A", 0, 10), hold("A", 5, 20)}, nil, 2},
		"two visits":            {[]*Hold{{Process: "A", To: 10, Text: "sold"}, {Process: "A", From: 5, To: 20, Text: "sold"}}, []Span{{From: 5, To: 10}}, 2},
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
