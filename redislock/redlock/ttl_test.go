package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestAskingAgainKeepsThePromise: a renewal promises the TTL of its grant, also if the owner has asked again for a
// shorter one. An owner that asks again for longer is promised no more than its members keep.
func TestAskingAgainKeepsThePromise(t *testing.T) {
	for what, ttl := range map[string]time.Duration{"shorter": time.Second, "longer": time.Minute} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(5)
				s, contender := start(t, all), start(t, all)
				req := request("x", 10*time.Second)
				grant := mustAcquire(t, s, req)
				req.TTL = ttl
				again := mustAcquire(t, s, req)
				if again.Token != grant.Token || again.TTL > ttl {
					t.Errorf("asking again for %v: %+v after %+v", ttl, again, grant)
				}
				promised := driver.Grant{Name: grant.Name, Owner: grant.Owner, Token: grant.Token, Handle: grant.Handle, TTL: max(grant.TTL, again.TTL)}
				for range 2 {
					time.Sleep(promised.TTL - time.Millisecond)
					if _, err := contender.Acquire(t.Context(), request("x", time.Second)); !errors.Is(err, driver.ErrHeld) {
						t.Fatalf("the lock ended before the promised %v: %v", promised.TTL, err)
					}
					mustRenew(t, s, promised)
				}
			})
		})
	}
}

// TestAnswersAfterTTLGrantNothing: answers that take longer than the lock lasts grant nothing.
func TestAnswersAfterTTLGrantNothing(t *testing.T) {
	bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
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
