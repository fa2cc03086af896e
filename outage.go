package dlock

import (
	"time"

	"github.com/dlock-go/dlock/internal/clock"
)

// queueState is what the callers of a process that want the same name hand on.
type queueState struct {
	turn   turn
	outage outage
	passed *passed // the lock itself; nil if it was not handed on
}

// answered notes that the store answers.
func (s *queueState) answered() { s.outage = outage{answered: true} }

// outage is a time in which the store does not answer. Callers in a queue know of
// it from the one before, so that they need not find out one after another.
type outage struct {
	began    clock.Instant // zero while the store answers
	err      error         // what there was instead of an answer
	answered bool          // the store has answered since the first of the queue came
}

// bearable reports whether it is worth to go on waiting. A store that has answered
// may take a TTL to recover, after which a holder would not trust its lock either.
// A store that never answered gets no second chance.
func (o *outage) bearable(now clock.Instant, ttl time.Duration) bool {
	return o.began == 0 || o.answered && now-o.began < ttl
}

// lasts notes that there was no answer.
func (o *outage) lasts(now clock.Instant, err error) {
	if o.began == 0 {
		o.began = now
	}
	o.err = err
}
