package quorum_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// clockMembers are members that take their tokens from the same clock.
func clockMembers(n int) []*fakeMember {
	all := fakeMembers(n)
	for _, c := range all {
		c.clock = func() uint64 { return uint64(time.Now().UnixMicro()) }
	}
	return all
}

// use acquires and releases x once in each 10 ms.
func use(t *testing.T, s driver.Store, times int) {
	t.Helper()
	for range times {
		if err := s.Release(t.Context(), mustAcquire(t, s, request("x", 10*time.Second))); err != nil {
			t.Fatal(err)
		}
		if err := backoff.Sleep(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTokenAfterAnotherDoesNotRunAhead: tokens that follow those of another grant at once are ahead of
// the members' clocks. That does not add up.
func TestTokenAfterAnotherDoesNotRunAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, clockMembers(3))
		for range 2000 { // three minutes
			use(t, s, 9)
			for range 2 {
				if err := s.Release(t.Context(), mustAcquire(t, s, request("x", 10*time.Second))); err != nil {
					t.Fatal(err)
				}
			}
		}
		grant := mustAcquire(t, s, request("x", time.Second))
		if ahead := time.Until(time.UnixMicro(int64(grant.Token))); ahead > 10*time.Millisecond {
			t.Errorf("the token is %v ahead of the members' clocks", ahead)
		}
	})
}

// TestEarlyRestartOfAUsedLock: as TestEarlyRestartAllowsSecondHolder, after the holder's process has
// used the lock for ten seconds: the second holder has the larger token, because the members'
// clocks agree.
func TestEarlyRestartOfAUsedLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := clockMembers(5)
		for _, c := range all[3:] {
			c.set(gone)
		}
		holder := open(t, all)
		use(t, holder, 1000)
		grant := mustAcquire(t, holder, request("x", 10*time.Second))
		synctest.Wait()
		all[2].set(gone)
		for _, c := range all[3:] {
			c.set(up)
		}
		if err := backoff.Sleep(t.Context(), 500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		all[2].restartEmpty()
		all[2].set(up)
		second, err := open(t, all).Acquire(t.Context(), request("x", 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if second.Token <= lastToken(grant) {
			t.Errorf("the second holder has token %d, the first has %d to %d", second.Token, grant.Token, lastToken(grant))
		}
	})
}
