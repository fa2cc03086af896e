package zklock

import "testing"

// TestDowngradeOfLostLockIsNotRepeated: the nodes of a lock are lost before its downgrade. The
// outcome is known at once.
func TestDowngradeOfLostLockIsNotRepeated(t *testing.T) {
	s := &Store{}
	s.hasSession = true
	tries := 0
	err := s.retry(t.Context(), func() error { tries++; return s.downgrade(&hold{}) })
	if !isOutdated(err) || tries != 1 {
		t.Errorf("the downgrade of a lock without nodes: %v after %d tries; want that it is gone after one", err, tries)
	}
}
