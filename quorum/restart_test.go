package quorum_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// A holder has three members of five, and one of these crashes. What happens next
// depends on when it comes back. The members take their tokens from clocks, so that
// one that has forgotten everything does not begin again with small ones.
func crashed(t *testing.T) (all []*cell, grant driver.Grant, rival driver.Store) {
	all = cells(5)
	for _, c := range all {
		c.clock = func() uint64 { return uint64(time.Now().UnixMicro()) }
	}
	for _, c := range all[3:] {
		c.set(gone)
	}
	holder := open(t, all)
	grant = mustAcquire(t, holder, request("x", 10*time.Second))
	synctest.Wait()
	all[2].set(gone)
	for _, c := range all[3:] {
		c.set(up)
	}
	return all, grant, open(t, all)
}

// TestRestartAtOnce shows what is not promised: a member that comes back empty
// inside the TTL makes a second majority possible. The token is larger.
func TestRestartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, grant, rival := crashed(t)
		if err := pause(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		all[2].wipe()
		all[2].set(up)
		second, err := rival.Acquire(t.Context(), request("x", 10*time.Second))
		if err != nil {
			t.Fatalf("the member that forgot the lock votes for the rival, who is refused: %v", err)
		}
		if second.Token <= grant.Token {
			t.Errorf("the second holder has token %d, the first has %d", second.Token, grant.Token)
		}
	})
}

// TestRestartIsFenced is the same for a lock that all members had, of whom two forget:
// whoever gets a majority gets a larger token.
func TestRestartIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(5)
		holder, rival := open(t, all), open(t, all)
		grant := mustAcquire(t, holder, request("x", 10*time.Second))
		synctest.Wait()
		for _, c := range all[:2] {
			c.wipe()
		}
		if _, err := rival.Acquire(t.Context(), request("x", 10*time.Second)); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("three members remember the holder: want ErrHeld, got: %v", err)
		}
		// The clock of a third is set forward: its lock ends early.
		if err := all[2].server.Break(t.Context(), "x", grant.Token); err != nil {
			t.Fatal(err)
		}
		second := mustAcquire(t, rival, request("x", 10*time.Second))
		if second.Token <= grant.Token {
			t.Errorf("the second holder has token %d, the first has %d", second.Token, grant.Token)
		}
	})
}

// TestDelayedRestart: a member that stays out for the longest TTL has forgotten
// nothing that still counts.
func TestDelayedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, grant, rival := crashed(t)
		crash := time.Now()
		for time.Since(crash) < 10*time.Second {
			if _, err := rival.Acquire(t.Context(), request("x", 10*time.Second)); err == nil {
				t.Fatalf("granted for %v, and to somebody else after %v", grant.TTL, time.Since(crash))
			}
			if err := pause(t.Context(), 100*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		all[2].wipe()
		all[2].set(up)
		if _, err := rival.Acquire(t.Context(), request("x", 10*time.Second)); err != nil {
			t.Errorf("the lock is over, and cannot be had: %v", err)
		}
	})
}

// TestRestartIsRepaired: the next renewal gives a member that forgot the lock its
// part of it again, so that the time in which it could vote twice is short.
func TestRestartIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(5)
		s := open(t, all)
		grants := []driver.Grant{mustAcquire(t, s, request("x", time.Minute)), mustAcquire(t, s, request("y", time.Minute))}
		synctest.Wait()
		for _, c := range all[3:] {
			c.wipe()
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
				if known := c.knows(grant.Name); known < grant.Token {
					t.Errorf("member %d knows token %d of %q, which is %d", i+1, known, grant.Name, grant.Token)
				}
			}
		}
		for _, c := range all[:2] {
			c.wipe()
		}
		if errs := s.Renew(t.Context(), grants); errs != nil {
			t.Errorf("what was repaired does not count: %v", errs)
		}
		for _, grant := range grants {
			if err := s.Release(t.Context(), grant); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		for i, c := range all {
			if left := c.locks(); len(left) > 0 {
				t.Errorf("all is released, and member %d holds %q", i+1, left)
			}
		}
	})
}

// TestReleaseOvertakesRepair: a repair that is under way does not outlive the lock.
func TestReleaseOvertakesRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(3)
		s := open(t, all)
		grant := mustAcquire(t, s, request("x", time.Minute))
		synctest.Wait()
		all[2].wipe()
		all[2].mu.Lock()
		all[2].delay = func() time.Duration { return 5 * time.Millisecond }
		all[2].mu.Unlock()
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Fatal(errs)
		}
		if err := pause(t.Context(), 12*time.Millisecond); err != nil { // the repair is on its way
			t.Fatal(err)
		}
		if n := all[2].count("Acquire"); n != 2 {
			t.Fatalf("the member was asked %d times, one of them to repair it", n-1)
		}
		if err := s.Release(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if left := all[2].locks(); len(left) > 0 {
			t.Errorf("the lock is released, and the repaired member holds %q", left)
		}
	})
}
