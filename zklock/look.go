package zklock

import "github.com/dlock-go/dlock/driver"

// lookAhead returns the position that a new node would have. An attempt that does not wait looks
// before it creates nodes: those of refused attempts refuse others, so that many attempts would keep
// each other from a free lock. Of the attempts that find the lock free at the same time, the one with
// the first node is granted. A refusal is what the server knew after the leader's answer: before, it
// may have missed a release.
func (s *Store) lookAhead(h *hold, mode driver.Mode) (position, error) {
	if at, err := s.positionOfNew(h, mode); err == nil && at.first {
		return at, nil
	}
	if err := s.confirmSession(); err != nil {
		return position{}, err
	}
	return s.positionOfNew(h, mode)
}

func (s *Store) positionOfNew(h *hold, mode driver.Mode) (at position, err error) {
	var queue []contender
	var places, leases []string
	if mode.Limit > 0 {
		queue, places, leases, err = s.readSemaphore(h)
	} else {
		queue, err = s.queue(h.container)
	}
	if err != nil {
		return position{}, err
	}
	if len(queue) > 0 && queue[0].mode.Limit != mode.Limit {
		return position{}, &driver.ModeError{Name: h.name, Mode: queue[0].mode}
	}
	at = positionOf(append(queue, contender{mode: mode}), len(queue))
	if at.first && (len(places) > 0 || mode.Limit > 0 && len(leases) >= mode.Limit) {
		at = position{mode: mode}
		if len(leases) > 0 {
			at.holder = leases[0]
		}
	}
	return at, nil
}
