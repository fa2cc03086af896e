package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// crashed returns five members of which three granted a lock, and one of these three has
// crashed, with the grant and a contender. The members take their tokens from clocks, so that
// an empty one does not begin again with small ones.
func crashed(t *testing.T) (all []*fakeMember, grant driver.Grant, contender *Store) {
	all = fakeMembers(5)
	for _, c := range all {
		c.server.clock = func() uint64 { return uint64(time.Now().UnixMicro()) }
	}
	for _, c := range all[3:] {
		c.set(gone)
	}
	holder := start(t, all)
	grant = mustAcquire(t, holder, request("x", 10*time.Second))
	synctest.Wait()
	all[2].set(gone)
	for _, c := range all[3:] {
		c.set(up)
	}
	return all, grant, start(t, all)
}

// TestDelayedRestartKeepsOneHolder: all locks that a member forgot have expired if it stays out
// for the longest TTL.
func TestDelayedRestartKeepsOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, grant, contender := crashed(t)
		crash := time.Now()
		for time.Since(crash) < 10*time.Second {
			if _, err := contender.Acquire(t.Context(), request("x", 10*time.Second)); err == nil {
				t.Fatalf("granted for %v, and to the contender after %v", grant.TTL, time.Since(crash))
			}
			time.Sleep(100 * time.Millisecond)
		}
		all[2].restartEmpty()
		all[2].set(up)
		if _, err := contender.Acquire(t.Context(), request("x", 10*time.Second)); err != nil {
			t.Errorf("Acquire of an expired lock: %v", err)
		}
	})
}

// TestRenewalRepairsRestartedMember: the next renewal acquires the lock again at a member that
// forgot it, so that the member can vote twice for a short time only.
func TestRenewalRepairsRestartedMember(t *testing.T) {
	bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
		grants := []driver.Grant{mustAcquire(t, s, request("x", time.Minute)), mustAcquire(t, s, request("y", time.Minute))}
		synctest.Wait()
		for _, c := range all[3:] {
			c.restartEmpty()
		}
		if errs := s.Renew(t.Context(), grants); errs != nil {
			t.Fatalf("three of five members remember: %v", errs)
		}
		synctest.Wait()
		for i, c := range all {
			if n := len(c.locks()); n != 2 {
				t.Errorf("two locks were renewed, member %d has %d", i+1, n)
			}
			for _, grant := range grants {
				if known := c.knownToken(grant.Name); known < lastToken(grant.Token) {
					t.Errorf("member %d knows token %d of %q, which is %d", i+1, known, grant.Name, grant.Token)
				}
			}
		}
		for _, c := range all[:2] {
			c.restartEmpty()
		}
		if errs := s.Renew(t.Context(), grants); errs != nil {
			t.Errorf("repaired members do not count: %v", errs)
		}
		for _, grant := range grants {
			mustRelease(t, s, grant)
		}
		synctest.Wait()
		checkFree(t, all, "after the release")
	})
}

// TestReleaseUndoesRepair: a repair under way does not outlive the lock.
func TestReleaseUndoesRepair(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		grant := mustAcquire(t, s, request("x", time.Minute))
		synctest.Wait()
		all[2].restartEmpty()
		all[2].slowDown(5 * time.Millisecond)
		mustRenew(t, s, grant)
		time.Sleep(12 * time.Millisecond) // the repair is on its way
		if n := all[2].count("Acquire"); n != 2 {
			t.Fatalf("the member was asked %d times, one of them to repair it", n-1)
		}
		mustRelease(t, s, grant)
		s.Close()
		if left := all[2].locks(); len(left) > 0 {
			t.Errorf("after the release the repaired member holds %q", left)
		}
	})
}
