package once

import "testing"

// TestOnceHoldsNoLockMeanwhile: callers that wait for another one wait at a channel, not for a mutex, which
// would stop a bubble of testing/synctest.
func TestOnceHoldsNoLockMeanwhile(t *testing.T) {
	var o Once
	o.Do(func() {
		if !o.mu.TryLock() {
			t.Error("the mutex is locked while the function runs")
			return
		}
		o.mu.Unlock()
	})
}
