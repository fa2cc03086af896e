package quorum

import (
	"sync"
	"time"
)

// forecast guesses a token that is larger than any member's own choice, if their clocks agree, so
// that all members choose the guess, and a lock takes one round trip.
//
// Members that take their tokens from clocks count microseconds. So the guess is the largest
// token that was seen, plus the microseconds since its call was sent. It runs ahead of the
// members' clocks by the longest time that a call took to a member, up to maxLead. If too
// many members lost their data, tokens rise by these clocks alone: the lead must be less
// than the time in which a member can crash and come back.
type forecast struct {
	mu    sync.Mutex
	token uint64
	sent  time.Time
}

// guess returns the guess for a call that is sent at that time; zero while nothing is known.
func (f *forecast) guess(sent time.Time) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.guessLocked(sent)
}

func (f *forecast) guessLocked(sent time.Time) uint64 {
	if f.token == 0 {
		return 0
	}
	return f.token + uint64(max(0, sent.Sub(f.sent).Microseconds()))
}

// maxLead limits by how much the guess is ahead of the members' clocks.
const maxLead = 10 * time.Millisecond

// saw learns from the largest token that members granted just now, to a call that was sent at that
// time. It is for single tokens that differ: clocks have chosen them. If all are the same, the guess
// or the counters of the members have chosen them. A counter may be ahead of the clocks, because of
// a span. To learn from it would move the guess, the next span and the counter ahead, for good.
func (f *forecast) saw(token uint64, sent time.Time) {
	if late := time.Since(sent) - maxLead; late > 0 {
		sent = sent.Add(late)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token > f.guessLocked(sent) {
		f.token, f.sent = token, sent
	}
}
