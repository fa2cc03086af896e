package quorum

import (
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The rules that tests break.

// BreakMajority makes half of the members enough.
func (s *Store) BreakMajority() { s.rules.majority = len(s.members) / 2 }

// BreakDrift makes all clocks run at the same speed.
func (s *Store) BreakDrift() { s.rules.drift = func(time.Duration) time.Duration { return 0 } }

// BreakUndo makes a failed attempt give back only what it was granted.
func (s *Store) BreakUndo() { s.rules.mayHold = func(err error) bool { return err == nil } }

// BreakRepair makes a renewal acquire the lock again without a majority.
func (s *Store) BreakRepair() { s.rules.mayRepair = func(int) bool { return true } }

// BreakAlias makes all attempts of an owner the same at the members.
func (s *Store) BreakAlias() { s.rules.alias = func(owner driver.Owner) driver.Owner { return owner } }

// BreakWriteBack makes each member keep its own token.
func (s *Store) BreakWriteBack() { s.rules.writeBack = false }

// Remembered counts the acquisitions that the store remembers.
func (s *Store) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acquisitions)
}
