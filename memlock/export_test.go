package memlock

import "fmt"

// Leftovers returns what the store still keeps: held locks, places of waiters and
// subscriptions. Expired entries do not count: the next removal takes them.
func (s *Store) Leftovers() (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for name := range s.locks {
		l := s.use(name, now)
		for range l.Shares {
			left = append(left, fmt.Sprintf("lock %q, %v", name, l.Mode))
		}
	}
	for name, queue := range s.queues {
		for _, p := range queue {
			if now < p.Expires {
				left = append(left, fmt.Sprintf("a place for %q", name))
			}
		}
	}
	names, _ := s.waiters.Names()
	for _, name := range names {
		left = append(left, fmt.Sprintf("a subscription to %q", name))
	}
	return left
}
