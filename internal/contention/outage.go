package contention

import (
	"cmp"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
)

// outage is a period in which the store does not answer. Callers learn of it from
// their predecessor in the local queue, so that each need not find out by itself.
type outage struct {
	began    clock.Instant // zero while the store answers
	err      error         // of the last call
	answered bool          // the store has answered an attempt since ForgetOutage
	answerAt clock.Instant // of the last such answer
	silent   clock.Instant // when the first call began that a caller gave up, of those since an answer; else zero
}

// ForgetOutage is for a caller that found the slot free: what the State knows about the
// store may be old.
func (s *State) ForgetOutage() { s.outage = outage{} }

// Answered records that the store answers attempts.
func (s *State) Answered(now clock.Instant) { s.outage = outage{answered: true, answerAt: now} }

// OutageEnded records that a call other than an attempt succeeded. Answers does not become true
// by it: some stores can tell without their server that nothing is held.
func (s *State) OutageEnded() { s.outage.began, s.outage.silent = 0, 0 }

// Answers reports whether the store has answered an attempt, and every call since.
func (s *State) Answers() bool { return s.outage.answered && s.outage.began == 0 }

// AnsweredAfter reports whether the store has answered an attempt after that instant, also if an
// outage has begun since.
func (s *State) AnsweredAfter(instant clock.Instant) bool {
	return s.outage.answered && s.outage.answerAt > instant
}

// Unanswered records that the store did not answer a call.
func (s *State) Unanswered(now clock.Instant, err error) {
	if s.outage.began == 0 {
		s.outage.began = now
	}
	s.outage.err = err
}

// GaveUp records that a caller gives up waiting for an answer because its own time has ended. The store
// may have been silent since silent. GaveUp returns whether the time is too short to tell an outage.
// Callers that give up one after the other, each after a short time, may meet a store that is gone.
func (s *State) GaveUp(now, silent clock.Instant, moment time.Duration) (tooEarly bool) {
	o := &s.outage
	o.silent = cmp.Or(o.silent, silent)
	return o.began == 0 && now-o.silent < moment
}

// OutageTooLong returns the error of the last call if the outage is not worth waiting
// for, otherwise nil. A store that has answered before gets a TTL to recover: after
// that time a holder would not trust its lock either. A store that never answered gets
// no second chance.
func (s *State) OutageTooLong(now clock.Instant, ttl time.Duration) error {
	o := &s.outage
	if o.began == 0 || o.answered && now-o.began < ttl {
		return nil
	}
	return o.err
}
