package sqllock

import "sync"

// maxHints bounds a set of hints, which may be forgotten.
const maxHints = 10_000

// set is safe for concurrent use. The zero value is empty.
type set[K comparable] struct {
	mu      sync.Mutex
	members map[K]struct{}
	max     int // becomes empty when it has as many members; zero is no limit
}

func (s *set[K]) has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.members[key]
	return ok
}

func (s *set[K]) add(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members == nil || s.max > 0 && len(s.members) >= s.max {
		s.members = make(map[K]struct{})
	}
	s.members[key] = struct{}{}
}

func (s *set[K]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, key)
}
