package stage

import (
	"testing"
	"time"
)

// TestVerdict: what happened decides the verdict.
func TestVerdict(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		holds  []*Hold
		pauses []Span
		writes []write
		stuck  bool
		want   Verdict
	}{
		"one after the other": {
			holds:  []*Hold{{Process: "A", From: 0, To: s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 1}, {1, 2}},
			want:   Held,
		},
		"at the same time": {
			holds:  []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 0}, {1, 0}},
			want:   TwoHolders,
		},
		"at the same time, with the fence": {
			holds:  []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 2}, {0, 1}},
			want:   TwoFenced,
		},
		"a fence that does not refuse": {
			holds:  []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 1}, {0, 1}},
			want:   TwoHolders,
		},
		"the same process twice": {
			holds: []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "A", From: s, To: 2 * s}},
			want:  Held,
		},
		"while the other is paused": {
			holds:  []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "B", From: s, To: 2 * s}},
			pauses: []Span{{"A", s / 2, 5 * s / 2}},
			writes: []write{{0, 0}, {1, 0}},
			want:   Held,
		},
		"after a pause of the other": {
			holds:  []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "B", From: s, To: 4 * s}},
			pauses: []Span{{"A", s / 2, 2 * s}},
			want:   TwoHolders,
		},
		"a pause that never ends": {
			holds:  []*Hold{{Process: "A", From: 0, To: 3 * s}, {Process: "B", From: s, To: 4 * s}},
			pauses: []Span{{"A", s / 2, 0}},
			want:   Held,
		},
		"a stale write without a token": {
			holds:  []*Hold{{Process: "A", From: 0, To: s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 0}, {0, 0}},
			want:   Accepted,
		},
		"a stale write with a token": {
			holds:  []*Hold{{Process: "A", From: 0, To: s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 2}, {0, 1}},
			want:   Refused,
		},
		"a stale write with an equal token": {
			holds:  []*Hold{{Process: "A", From: 0, To: s}, {Process: "B", From: s, To: 2 * s}},
			writes: []write{{0, 1}, {0, 1}},
			want:   Accepted,
		},
		"stuck": {stuck: true, want: Stuck},
	} {
		t.Run(name, func(t *testing.T) {
			st := &Stage{record: &Record{Holds: c.holds, Pauses: c.pauses}, stuck: c.stuck}
			st.Account.Fenced.fenced = true
			for _, w := range c.writes {
				st.Account.write(balances{w.read, w.read}, w.token)
			}
			if got := st.verdict(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// write is what a process read before it wrote, and its token.
type write struct {
	read  int
	token uint64
}
