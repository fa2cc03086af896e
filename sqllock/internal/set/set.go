// Package set has a set that can be bounded.
package set

import "sync"

// Set is safe for concurrent use. The zero value is empty and has no limit.
type Set[K comparable] struct {
	Max     int // the set becomes empty before it would have more members; zero is no limit
	mu      sync.Mutex
	members map[K]struct{}
}

// Has reports whether key is a member.
func (s *Set[K]) Has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.members[key]
	return ok
}

// Put makes key a member, or no member.
func (s *Set[K]) Put(key K, member bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !member {
		delete(s.members, key)
		return
	}
	if s.members == nil || s.Max > 0 && len(s.members) >= s.Max {
		s.members = make(map[K]struct{})
	}
	s.members[key] = struct{}{}
}
