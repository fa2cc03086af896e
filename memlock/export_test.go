package memlock

import "fmt"

// Leftovers says what s still keeps, for tests: held locks, places of fair
// waiters and watches. Expired entries wait for the next sweep and do not count.
func (s *Store) Leftovers() (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for name, l := range s.locks {
		if now < l.expires {
			left = append(left, fmt.Sprintf("lock %q", name))
		}
	}
	for name, queue := range s.queues {
		for _, p := range queue {
			if now < p.expires {
				left = append(left, fmt.Sprintf("a place for %q", name))
			}
		}
	}
	for name := range s.watches {
		left = append(left, fmt.Sprintf("a watch of %q", name))
	}
	return left
}
