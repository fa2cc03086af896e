package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestShorterTTLDoesNotShortenLock: a renewal promises the TTL of its grant, also if the owner
// has asked again for a shorter one.
func TestShorterTTLDoesNotShortenLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s, contender := start(t, all), start(t, all)
		req := request("x", 10*time.Second)
		grant := mustAcquire(t, s, req)
		req.TTL = time.Second
		if again := mustAcquire(t, s, req); again.Token != grant.Token || again.TTL > time.Second {
			t.Errorf("asking again for a second: %+v after %+v", again, grant)
		}
		for range 2 {
			time.Sleep(grant.TTL - time.Millisecond)
			if _, err := contender.Acquire(t.Context(), request("x", time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("the lock ended before the promised %v: %v", grant.TTL, err)
			}
			if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
}

// TestAnswersAfterTTLGrantNothing: answers that take longer than the lock lasts grant nothing.
func TestAnswersAfterTTLGrantNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s := start(t, all)
		settle(t, s)
		setDelay(all, 15*time.Millisecond)
		if grant, err := s.Acquire(t.Context(), request("x", 30*time.Millisecond)); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("Acquire for 30 ms with answers after 30 ms: %+v, %v; want ErrUnreachable", grant, err)
		}
		synctest.Wait()
		checkFree(t, all, "after an attempt that took too long")
		if _, err := s.Acquire(t.Context(), request("x", 300*time.Millisecond)); err != nil {
			t.Errorf("Acquire for 300 ms: %v", err)
		}
	})
}

// TestLongerTTLIsPromisedOnlyIfMembersKeepIt: an owner that asks again for longer is promised no
// more than its members keep.
func TestLongerTTLIsPromisedOnlyIfMembersKeepIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		s := start(t, all)
		req := request("x", 10*time.Second)
		mustAcquire(t, s, req)
		req.TTL = time.Minute
		again := mustAcquire(t, s, req)
		for range 2 {
			time.Sleep(again.TTL - time.Millisecond)
			if _, err := start(t, all).Acquire(t.Context(), request("x", time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("the lock ended before the promised %v: %v", again.TTL, err)
			}
			if errs := s.Renew(t.Context(), []driver.Grant{again}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
}
