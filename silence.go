package dlock

import (
	"time"

	"github.com/dlock-go/dlock/internal/clock"
)

// doorState is what those of a process who want the same name hand on.
type doorState struct {
	turn    turn
	silence silence
	passed  *passed // the lock itself; nil if it was not handed on
}

// silence is a store that does not answer. Those who wait in a queue know of it
// from the one before, so that they need not find out one after another.
type silence struct {
	began clock.Instant // zero while the store answers
	err   error         // what there was instead of an answer
}

// patient says whether a store that does not answer may recover yet: it has a
// TTL, after which a holder would not believe in its lock either.
func (s *silence) patient(now clock.Instant, ttl time.Duration) bool {
	return s.began == 0 || now-s.began < ttl
}

// lasts: there was no answer again.
func (s *silence) lasts(now clock.Instant, err error) {
	if s.began == 0 {
		s.began = now
	}
	s.err = err
}
