package quorum

import (
	"sync"
	"time"
)

// forecast guesses a token that is larger than any member's own choice, if their clocks agree, so
// that all members choose the guess, and a lock takes one round trip.
//
// Members that take their tokens from clocks count microseconds. So the guess is a token that they
// chose by themselves, plus the microseconds since its call was sent. It runs ahead of the
// members' clocks by the time that the call took to a member, up to maxLead. If too
// many members lost their data, tokens rise by these clocks alone: the lead must be less
// than the time in which a member can crash and come back.
//
// A token that members chose because of a guess says nothing about their clocks: it may be ahead of
// them, because it follows the tokens of a grant. To learn from it would move the next guess ahead, for good. So
// one vote in a while has no guess, and what the members choose then replaces what was known.
type forecast struct {
	mu    sync.Mutex
	token uint64
	sent  time.Time
}

const (
	// maxLead limits by how much the guess is ahead of the members' clocks.
	maxLead = 10 * time.Millisecond
	// learnEvery is how long the guess counts on clocks that run at the same speed.
	learnEvery = time.Minute
)

// guess returns the guess for a call that is sent at that time, or zero: the members choose.
func (f *forecast) guess(sent time.Time) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	passed := sent.Sub(f.sent)
	if f.token == 0 || passed > learnEvery {
		return 0
	}
	return f.token + uint64(max(0, passed.Microseconds()))
}

// saw learns the largest token that members have just chosen for a call without a guess, which was
// sent at that time.
func (f *forecast) saw(token uint64, sent time.Time) {
	if late := time.Since(sent) - maxLead; late > 0 {
		sent = sent.Add(late)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token, f.sent = token, sent
}
