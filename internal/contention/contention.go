// Package contention decides how a process shares a name with other processes that
// compete for it: when it pauses before it takes the lock again, whether it hands the
// lock over between its goroutines, and how long it puts up with an outage of the
// store. It makes decisions only; its caller reads the clock and sleeps.
package contention

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
)

// State is what a process knows about the contention for one name. The zero value
// knows nothing. A State belongs to one goroutine at a time.
//
// Time slices keep a busy process from starving others: its goroutines hand a lock
// over, or take it again, faster than any other process can ask for it. So at the end
// of a slice the next of them pauses. Only the end of the pause shows whether other
// processes want the lock. If none took it, the slices get longer, so that a process
// without contenders hardly ever pauses.
type State struct {
	began    clock.Instant // when this process took the lock first in this slice; zero outside of one
	granted  clock.Instant // when the store last granted it the lock
	released clock.Instant // when it last released the lock or handed it over
	length   time.Duration // of the slice; zero stands for SlicePolicy.slice
	paused   time.Duration // length of a pause whose outcome is not known yet
	resumes  clock.Instant // when the pause under way ends, which a caller may leave to the next one
	missed   int           // how many pauses in a row the contenders missed

	contenders contenders
	changes    holderChanges
	outage     outage
}

const (
	// maxHandOver limits the time in which other processes cannot even try.
	maxHandOver = 50 * time.Millisecond
	// slicePerPause is how many times longer than its pause a slice without contenders may
	// be if waiters poll.
	slicePerPause = 80
	// maxLonger is how many times a pause that contenders missed is doubled.
	maxLonger = 2
)

// Taken records that the store has granted this process the lock.
func (s *State) Taken(now clock.Instant, p *SlicePolicy) {
	s.Answered(now)
	if s.paused > 0 {
		if len(s.contenders) > 0 {
			s.missed = min(s.missed+1, maxLonger)
		} else { // the pause was in vain
			s.length = min(2*max(s.length, p.slice), cmp.Or(p.longest, slicePerPause*s.paused))
		}
		s.began, s.paused = 0, 0
	}
	s.granted, s.resumes = now, 0
	s.changes = holderChanges{}
	if s.began == 0 {
		s.began = now
		s.contenders.beginTurns()
	}
}

// Refused records that another process has the lock, with a token that is zero if unknown.
func (s *State) Refused(now clock.Instant, by driver.Holder, token uint64) {
	s.Answered(now)
	s.contenders.served(by)
	s.changes.seen(now, token)
	if s.paused > 0 {
		s.length = 0
	}
	s.began, s.paused, s.missed, s.resumes = 0, 0, 0, 0
}

// Released records that this process has released the lock or handed it over.
func (s *State) Released(now clock.Instant) {
	s.released = now
	s.changes.last = now
}

// PauseBeforeTaking returns how long the next caller of this process pauses before
// it takes the lock again, so that other processes can take it. It is zero within a
// time slice. If the caller before left in the middle of a pause, it is the rest.
func (s *State) PauseBeforeTaking(now clock.Instant, p *SlicePolicy) time.Duration {
	if s.resumes > now {
		return s.resumes - now
	}
	pause := p.pause
	if p.polling.enabled() {
		pause = p.polling.untilPolled(s.released - s.granted)
	}
	if now-s.released > pause { // other processes had time to take the lock
		s.began = 0
	}
	if !s.sliceEnded(now, p) {
		return 0
	}
	switch {
	case p.polling.enabled():
		s.paused = pause
	case len(s.contenders) > 0:
		s.paused = backoff.Jitter(p.yield << s.missed) // the contenders wait for a notification, which may be late
	default:
		s.paused = backoff.Jitter(pause)
	}
	s.resumes = now + s.paused
	return s.paused
}

// ShortenPause ends the pause under way at that instant. Its outcome tells nothing, and a new slice begins
// after it.
func (s *State) ShortenPause(end clock.Instant) {
	s.resumes, s.began, s.paused = end, 0, 0
}

// ForgetPause is for a caller that leaves before the outcome of its pause is known: such a pause does not
// show whether other processes want the lock. A pause that is still under way goes on.
func (s *State) ForgetPause(now clock.Instant) {
	if s.paused > 0 && s.resumes <= now {
		s.paused, s.missed = 0, 0
	}
}

// MayHandOver reports whether this process may hand the lock over between its goroutines. No
// other process can compete for the lock meanwhile.
func (s *State) MayHandOver(now clock.Instant, p *SlicePolicy) bool {
	return !s.sliceEnded(now, p) && now-s.granted <= maxHandOver
}

func (s *State) sliceEnded(now clock.Instant, p *SlicePolicy) bool {
	return s.began != 0 && now-s.began >= max(s.length, p.slice)
}

const (
	// yieldToUnseen: a process that had the lock recently leaves one wake-up in 16 to
	// processes that it has not seen yet, because they never had the lock.
	yieldToUnseen = 16
	// recent is the time that counts as "recently" there.
	recent = 250 * time.Millisecond
)

// YieldAfterWake returns how long a waiter lets other processes try first after its sleep.
// It is zero if all contenders have had the lock since this process had it, except for one
// time in yieldToUnseen. Processes take turns, because a store notifies all waiters at once
// and the same ones are always a little faster.
func (s *State) YieldAfterWake(now clock.Instant, p *SlicePolicy) time.Duration {
	if p.polling.enabled() {
		if s.hasTurn() {
			return 0
		}
		return p.polling.untilPolled(now - s.changes.last)
	}
	if s.contenders.allServed() {
		hadIt := s.released != 0 && now-s.released < recent
		if !hadIt || rand.N(yieldToUnseen) != 0 {
			return 0
		}
	}
	return backoff.Jitter(p.yield)
}
