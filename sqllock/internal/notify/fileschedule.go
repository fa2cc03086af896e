package notify

import "time"

const (
	// unnotifiedInterval is between two polls of a file of which changes are not notified.
	unnotifiedInterval = 250 * time.Millisecond

	// A change is notified when it is written and visible when it is committed, which
	// the disk decides. So polls follow it at growing distances.
	firstFollow = time.Millisecond
	lastFollow  = 128 * time.Millisecond

	// Polls may take a tenth of the time, so that a busy database costs a waiting process
	// a tenth of a core. What they take beyond that is a debt. A small debt is fine. The
	// debt of a poll that had to wait itself must not delay the next polls for long.
	costShare = 10
	fineDebt  = 20 * time.Millisecond
	maxDebt   = 30 * time.Millisecond
	minGap    = time.Millisecond
)

// fileSchedule is for a file, where a poll costs this machine.
type fileSchedule struct {
	notified bool          // changes are notified
	next     time.Time     // when to poll
	pending  bool          // a change asks for a poll that has not been made
	follow   time.Duration // the distance to the next poll that follows a change; zero if none
	free     time.Time     // no poll before
	last     time.Time     // when the last poll ended
	cost     time.Duration // what it took
	debt     time.Duration // what polls took too much, as of last
}

func (s *fileSchedule) Due() time.Time { return s.next }
func (s *fileSchedule) Pending() bool  { return s.pending }

// Changed lets a poll that is not cheap wait a little for the commit.
func (s *fileSchedule) Changed(now time.Time) {
	s.pending = true
	s.follow = firstFollow
	s.Asked(now.Add(min(s.cost, firstFollow)))
}

func (s *fileSchedule) Asked(now time.Time) { s.next = earlier(s.next, later(now, s.free)) }

func (s *fileSchedule) Polled(start, end time.Time, r Result, err error) {
	s.pending = false
	s.cost = end.Sub(start)
	paid := end.Sub(s.last) / costShare
	s.debt = min(max(s.debt-paid, 0)+s.cost, maxDebt)
	s.last = end
	s.free = end.Add(max(minGap, costShare*(s.debt-fineDebt)))
	wait := NotifiedInterval
	switch {
	case !s.notified || err != nil:
		wait = unnotifiedInterval
	case s.follow > lastFollow:
		s.follow = 0
	}
	if s.follow > 0 {
		wait = min(wait, s.follow)
		s.follow *= 2
	}
	if r.Expiry > 0 {
		wait = min(wait, r.Expiry)
	}
	s.next = later(end.Add(wait), s.free)
}

func (s *fileSchedule) Idle(now time.Time) {
	s.pending = false
	s.follow = 0
	s.next = now.Add(Linger)
}
