// Package contention decides how a process shares a name with other processes that
// compete for it: when it pauses before it takes the lock again, whether it hands the
// lock over between its goroutines, and how long it puts up with an outage of the
// store. It makes decisions only; its caller reads the clock and sleeps.
package contention

import (
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
)

// State is what a process knows about the contention for one name. The zero value
// knows nothing. A State belongs to one goroutine at a time.
type State struct {
	slice      timeslice
	contenders contenders
	outage     outage
}

// Taken records that this process has the lock.
func (s *State) Taken(now clock.Instant, p *SlicePolicy) {
	s.Answered()
	if s.slice.taken(now, p, len(s.contenders) > 0) {
		s.contenders.served()
	}
}

// Refused records that another process has the lock.
func (s *State) Refused(by driver.Holder) {
	s.Answered()
	s.contenders.saw(by)
	s.slice.refused()
}

// Released records that this process has released the lock or handed it over.
func (s *State) Released(now clock.Instant) { s.slice.released = now }

// PauseBeforeTaking returns how long the next caller of this process pauses before
// it takes the lock again, so that other processes can take it. It is zero within a
// time slice.
func (s *State) PauseBeforeTaking(now clock.Instant, p *SlicePolicy) time.Duration {
	switch {
	case !s.slice.pausesAt(now, p):
		return 0
	case p.yield != 0 && len(s.contenders) > 0:
		return backoff.Jitter(p.yield) // the contenders wait for a notification
	}
	return backoff.Jitter(p.pause)
}

// MayHandOver reports whether this process may hand the lock over between its
// goroutines, while no other process can compete for it.
func (s *State) MayHandOver(now clock.Instant, p *SlicePolicy) bool {
	s.Released(now)
	return !s.slice.ended(now, p) && now-s.slice.began <= maxHandOver
}

const (
	// A process that had the lock within the last recent yields one wake-up in
	// yieldToUnseen to processes it has not seen yet: they never had the lock.
	yieldToUnseen = 16
	recent        = 250 * time.Millisecond
)

// YieldAfterWake returns how long a waiter that was woken lets other processes try
// first. It is zero if the turn is this process's. Processes take turns because
// stores and machines notify all waiters at once, but always favour the same ones.
func (s *State) YieldAfterWake(now clock.Instant, p *SlicePolicy) time.Duration {
	if p.yield == 0 {
		return 0
	}
	if s.contenders.allServed() {
		hadIt := s.slice.released != 0 && now-s.slice.released < recent
		if !hadIt || rand.N(yieldToUnseen) != 0 {
			return 0
		}
	}
	return backoff.Jitter(p.yield)
}
