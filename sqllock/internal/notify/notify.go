// Package notify decides when the poller of a store polls: because another process has
// written to an SQLite file, because PostgreSQL sent a notification, or because it is time.
package notify

import (
	"slices"
	"time"
)

// Source notifies a store of what other processes do.
type Source struct {
	Events   <-chan struct{} // receives when something may have changed; nil if nothing notifies
	Schedule Schedule        // when to poll
	Notifies func() bool     // every change is notified now, so that Result.Processes does not matter; nil: never
	Stop     func()          // ends the source and waits for its goroutines
}

// Schedule decides when to poll.
type Schedule interface {
	Due() time.Time                                   // when to poll next
	Pending() bool                                    // a change asks for a poll that has not been made
	Changed(now time.Time)                            // Events has received
	Asked(now time.Time)                              // a caller of this process wants a poll
	Polled(start, end time.Time, r Result, err error) // a poll was made
	Idle(now time.Time)                               // no name is watched
}

// Result is what a poll says about all names.
type Result struct {
	Expiry time.Duration // until a lock or a place expires; zero if none is known that does soon
	Moving bool          // a lock is free, or has just changed hands

	// Processes is how many processes share the polls, zero if unknown.
	Processes int
}

// maxProcesses limits how rare the polls of one process get. Some that were counted may have died.
const maxProcesses = 64

func (r *Result) crowd() int { return min(r.Processes, maxProcesses) }

// ExpiresIn notes that a lock or a place expires after d.
func (r *Result) ExpiresIn(d time.Duration) {
	if d > 0 && (r.Expiry == 0 || d < r.Expiry) {
		r.Expiry = d
	}
}

const (
	// NotifiedInterval is the time between two polls when nothing happens and changes are notified.
	NotifiedInterval = time.Second

	// Linger is how long the poller stays when no name is watched any more, because
	// another watch often follows soon.
	Linger = 5 * time.Second
)

// Unnotified returns the source of a server that notifies of nothing.
func Unnotified() Source { return Source{Schedule: &serverSchedule{}, Stop: func() {}} }

func later(a, b time.Time) time.Time   { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

// MinInterval is the time between two polls of a server while locks change hands. Each poll that
// finds that none did doubles it, up to MaxInterval. Up to maxProcesses processes poll as often as
// serverPollers.
const (
	MinInterval = 2 * time.Millisecond
	MaxInterval = 100 * time.Millisecond

	serverPollers = 4
)

// times are what all schedules have.
type times struct {
	next time.Time // when to poll
	free time.Time // no poll before
}

// Due implements Schedule.
func (t *times) Due() time.Time { return t.next }

// Asked implements Schedule.
func (t *times) Asked(now time.Time) { t.next = earlier(t.next, later(now, t.free)) }

// pollAfter polls at the end of wait, or when a lock expires.
func (t *times) pollAfter(end time.Time, wait time.Duration, r Result) {
	if r.Expiry > 0 {
		wait = min(wait, r.Expiry)
	}
	t.next = later(end.Add(wait), t.free)
}

// serverSchedule is for a server, where a poll costs a round trip. Polls take at most half
// of the time.
type serverSchedule struct {
	times
	notified func() bool // whether the server notifies at the moment; nil if it never does
	gap      time.Duration
}

func (s *serverSchedule) Pending() bool { return false }

// Changed polls soon, because a notification may have been missed.
func (s *serverSchedule) Changed(now time.Time) { s.Asked(now) }

func (s *serverSchedule) Asked(now time.Time) {
	s.gap = MinInterval
	s.times.Asked(now)
}

func (s *serverSchedule) Polled(start, end time.Time, r Result, err error) {
	shortest := MinInterval * time.Duration(max(r.crowd(), serverPollers)) / serverPollers
	s.free = end.Add(max(MinInterval, end.Sub(start))) // a caller that asks need not wait for the others
	switch {
	case err != nil:
		s.gap = MaxInterval
	case r.Moving:
		s.gap = shortest
	default:
		s.gap = min(max(2*s.gap, shortest), MaxInterval)
	}
	wait := s.gap
	if err == nil && s.notified != nil && s.notified() {
		wait = NotifiedInterval
	}
	s.pollAfter(end, wait, r)
}

func (s *serverSchedule) Idle(now time.Time) { s.next = now.Add(Linger) }
