package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// splitMembers returns three members of which another holder has one each, so that every vote is
// split.
func splitMembers(t *testing.T) []*fakeMember {
	t.Helper()
	all := fakeMembers(3)
	for i, m := range all {
		req := request("x", time.Hour)
		req.Holder.PID = i + 1
		m.take(t, req, 0)
	}
	return all
}

// refusal demands that an attempt is refused.
func refusal(t *testing.T, s *Store, req driver.Request) *driver.HeldError {
	t.Helper()
	_, err := s.Acquire(t.Context(), req)
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		t.Fatalf("want a *HeldError, got: %v", err)
	}
	return held
}

// TestPausesLeaveTimeForTheLease: an attempt with a short TTL leaves the pauses after split votes to
// the waiter. Otherwise a vote that it wins in the end would come too late.
func TestPausesLeaveTimeForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Millisecond
		const ttl = 4 * timeout
		all := splitMembers(t)
		s := startWith(t, all, &Options{MemberTimeout: timeout})
		settle(t, s)
		setDelay(all, 4*time.Millisecond)
		for range 20 {
			start := time.Now()
			refusal(t, s, request("x", ttl))
			if took := time.Since(start); took >= ttl {
				t.Errorf("an attempt took %v; the TTL is %v", took, ttl)
			}
		}
	})
}

// TestFirstPauseOfAWaiterIsKept: a waiter subscribes after its first refusal, and asks again at once.
// If the first vote was split, the members are asked again at the end of the pause only. What
// other contenders give back meanwhile does not wake the waiter.
func TestFirstPauseOfAWaiterIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := splitMembers(t)
		s := start(t, all)
		settle(t, s)
		req := request("x", time.Minute)
		pause := refusal(t, s, req).Remaining
		asked := all[0].count("Acquire")
		woken := 0
		stop, err := s.Watch(t.Context(), req, func() { woken++ })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if held := refusal(t, s, req); held.Remaining != pause {
			t.Errorf("the pause is %v after the subscription; want %v", held.Remaining, pause)
		}
		for _, m := range all {
			_ = m.at().breakLock(t.Context(), "x", 1)
		}
		synctest.Wait()
		if n := all[0].count("Acquire"); n != asked || woken != 0 {
			t.Errorf("a member was asked %d times in the pause, and the waiter was woken %d times", n-asked, woken)
		}
		time.Sleep(pause)
		mustAcquire(t, s, req)
	})
}

// TestReleaseBetweenVotesEndsTheAttempt: an owner is released while its attempt pauses between two
// votes. The attempt ends without a lock, although the members are free now.
func TestReleaseBetweenVotesEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := splitMembers(t)
		s := start(t, all)
		settle(t, s)
		req := request("x", time.Hour)
		done := make(chan error, 1)
		go func() {
			_, err := s.Acquire(t.Context(), req)
			done <- err
		}()
		synctest.Wait() // in the pause
		if n := all[0].count("Acquire"); n != 2 {
			t.Fatalf("a member was asked %d times, once to settle; want one vote before the pause", n)
		}
		if err := s.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner}); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release during the pause: %v; want ErrNotHeld", err)
		}
		for _, m := range all {
			m.restartEmpty()
		}
		if err := <-done; err == nil {
			t.Error("the attempt was granted after its Release")
		}
		synctest.Wait()
		checkFree(t, all, "after the Release")
	})
}
