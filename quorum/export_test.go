package quorum

// Remembered counts the acquisitions that the store remembers.
func (s *Store) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acquisitions)
}
