package stage

// Verdict is what an experiment showed about one way to lock.
type Verdict string

// The verdicts, from the best to the worst.
const (
	// Held: there was one holder at a time, and each process got its turn.
	Held Verdict = "held"
	// Refused: a holder wrote after its lock had expired, and the fence refused the write.
	Refused Verdict = "stale write refused"
	// Accepted: a holder wrote after its lock had expired, and nothing refused the write.
	Accepted Verdict = "stale write accepted"
	// Herd: there was one holder at a time, but every release woke all waiters.
	Herd Verdict = "herd"
	// Stuck: a process did not get the lock, although no living process had it.
	Stuck Verdict = "stuck"
	// TwoFenced: two processes believed to have the lock at the same time, and the fence
	// refused the writes of the older one.
	TwoFenced Verdict = "two holders, fence held"
	// TwoHolders: two processes believed to have the lock at the same time.
	TwoHolders Verdict = "two holders"
)

// verdict judges what was recorded.
func (s *Stage) verdict() Verdict {
	fence := &s.Account.Fenced
	overlap := len(s.record.Overlaps()) > 0
	switch {
	case overlap && fence.Refused > 0 && fence.AddsUp():
		return TwoFenced
	case overlap:
		return TwoHolders
	case s.stuck:
		return Stuck
	case fence.Refused > 0 && fence.AddsUp():
		return Refused
	case !s.Account.Open.AddsUp(), !fence.AddsUp():
		return Accepted
	case s.herd:
		return Herd
	}
	return Held
}
