package notify

import "time"

// MinInterval is between two polls of a server while locks change hands. Each poll that
// finds that none did doubles it, up to MaxInterval.
const (
	MinInterval = 2 * time.Millisecond
	MaxInterval = 100 * time.Millisecond
)

// serverSchedule is for a server, where a poll costs a round trip. Polls take at most half
// of the time.
type serverSchedule struct {
	notified func() bool // whether the server notifies at the moment; nil if it never does
	next     time.Time   // when to poll
	free     time.Time   // no poll before
	gap      time.Duration
}

func (s *serverSchedule) Due() time.Time { return s.next }
func (s *serverSchedule) Pending() bool  { return false }

// Changed polls soon, because a notification may have been missed.
func (s *serverSchedule) Changed(now time.Time) { s.Asked(now) }

func (s *serverSchedule) Asked(now time.Time) {
	s.gap = MinInterval
	s.next = earlier(s.next, later(now, s.free))
}

func (s *serverSchedule) Polled(start, end time.Time, r Result, err error) {
	s.free = end.Add(max(MinInterval, end.Sub(start)))
	switch {
	case err != nil:
		s.gap = MaxInterval
	case r.Moving:
		s.gap = MinInterval
	default:
		s.gap = min(2*s.gap, MaxInterval)
	}
	wait := s.gap
	if err == nil && s.notified != nil && s.notified() {
		wait = NotifiedInterval
	}
	if r.Expiry > 0 {
		wait = min(wait, r.Expiry)
	}
	s.next = later(end.Add(wait), s.free)
}

func (s *serverSchedule) Idle(now time.Time) { s.next = now.Add(Linger) }
