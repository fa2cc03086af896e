package redlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestRulesHold checks the rules of Redlock. Mutants break each of them.
func TestRulesHold(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(t *testing.T)
	}{
		{"two halves of a network do not both grant", halvesExclude},
		{"clocks that run fast do not end a lock early", fastClocks},
		{"a failed attempt leaves nothing where its answer was lost", lostAnswers},
		{"a renewal does not bring a lost majority back", lostMajority},
		{"a late release does not touch a later attempt", lateRelease},
		{"a release does not overtake its attempt", overtakingRelease},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.check(t)
			})
		})
	}
}

const second = time.Second

// halvesExclude: two clients reach two members each.
func halvesExclude(t *testing.T) {
	all := fakeMembers(5)
	cut := func(reached ...int) []*fakeMember {
		seen := fakeMembers(5)
		for _, c := range seen {
			c.set(gone)
		}
		for _, i := range reached {
			seen[i] = all[i]
		}
		return seen
	}
	holders := 0
	for _, side := range [][]*fakeMember{cut(0, 1), cut(3, 4)} {
		_, err := start(t, side).Acquire(t.Context(), request("x", 10*second))
		if err == nil {
			holders++
		} else if !errors.Is(err, driver.ErrUnreachable) {
			t.Fatalf("without a majority: want ErrUnreachable, got: %v", err)
		}
	}
	if holders > 0 {
		t.Fatalf("%d clients that reach two members of five have the lock", holders)
	}
}

// fastClocks: all members count time 0.9 % too fast.
func fastClocks(t *testing.T) {
	all := fakeMembers(5)
	for _, c := range all {
		c.fast = 0.009
	}
	a, b := start(t, all), start(t, all)
	sent := time.Now()
	grant := mustAcquire(t, a, request("x", 10*second))
	time.Sleep(grant.TTL - time.Since(sent) - time.Microsecond)
	if _, err := b.Acquire(t.Context(), request("x", 10*second)); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("granted for %v, and not held all the time: want ErrHeld, got: %v", grant.TTL, err)
	}
}

// lostAnswers: three members carry out calls, but their answers are lost.
func lostAnswers(t *testing.T) {
	all := fakeMembers(5)
	s := start(t, all)
	settle(t, s)
	for _, c := range all[2:] {
		c.set(lost)
	}
	start := time.Now()
	if _, err := s.Acquire(t.Context(), request("x", time.Hour)); !errors.Is(err, driver.ErrUnreachable) {
		t.Fatalf("with three answers lost: want ErrUnreachable, got: %v", err)
	}
	if took := time.Since(start); took > 2*DefaultMemberTimeout {
		t.Fatalf("Acquire took %v", took)
	}
	s.Close() // waits for the background
	checkFree(t, all, "the attempt failed:")
}

// lostMajority: three members forget a lock that is held.
func lostMajority(t *testing.T) {
	all := fakeMembers(5)
	a, b := start(t, all), start(t, all)
	grant := mustAcquire(t, a, request("x", time.Hour))
	synctest.Wait() // for the slower members
	for _, c := range all[1:4] {
		c.restartEmpty()
	}
	if errs := a.Renew(t.Context(), []driver.Grant{grant}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Fatalf("renewing with two of five: want ErrNotHeld, got: %v", errs)
	}
	synctest.Wait()
	checkFree(t, all, "the lock is lost:")
	if _, err := b.Acquire(t.Context(), request("x", second)); err != nil {
		t.Fatalf("Acquire of a lost lock: %v", err)
	}
}

// lateRelease: an attempt fails, and its release arrives after the next attempt of the same
// owner was granted.
func lateRelease(t *testing.T) {
	all := fakeMembers(5)
	a, b := start(t, all), start(t, all)
	settle(t, a)
	req := request("x", time.Hour)
	for _, c := range all {
		c.set(late)
	}
	if _, err := a.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnreachable) {
		t.Fatalf("want ErrUnreachable, got: %v", err)
	}
	time.Sleep(second) // for the releases in the background
	for _, c := range all {
		c.set(up)
	}
	grant := mustAcquire(t, a, req)
	synctest.Wait()
	for _, c := range all {
		c.deliver() // the Acquire and the Release of the first attempt
	}
	if _, err := b.Acquire(t.Context(), request("x", second)); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("a late Release ended the lock: want ErrHeld, got: %v", err)
	}
	if errs := a.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Fatalf("a late Release ended the lock: %v", errs[0])
	}
}

// overtakingRelease: the caller leaves while its attempt travels slowly. The release that follows travels fast.
func overtakingRelease(t *testing.T) {
	all := fakeMembers(3)
	s := start(t, all)
	settle(t, s)
	sent := time.Now()
	for _, c := range all {
		c.delay = func() time.Duration {
			if time.Now().Equal(sent) {
				return 20 * time.Millisecond
			}
			return 0
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Acquire(ctx, request("x", time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("want DeadlineExceeded, got: %v", err)
	}
	s.Close() // waits for the background
	checkFree(t, all, "the caller left:")
}
