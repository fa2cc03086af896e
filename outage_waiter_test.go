package dlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

var waiterModes = map[string][]dlock.Option{"exclusive": nil, "shared": {dlock.WithShared()}}

// waitersGetTheLock starts three callers that wait for x, calls unlock after a minute, and checks
// that each caller gets the lock.
func waitersGetTheLock(t *testing.T, c *dlock.Client, opts []dlock.Option, unlock func()) {
	t.Helper()
	var waiters []<-chan lockResult
	for range 3 {
		waiters = append(waiters, lockSoon(c, t.Context(), opts...))
	}
	<-time.After(time.Minute)
	unlock()
	for _, waiter := range waiters {
		got := <-waiter
		if got.err != nil {
			t.Errorf("Lock: %v; want that the waiter survives the outage", got.err)
			continue
		}
		mustUnlock(t, got.lease)
	}
}

// Waiters behind a holder of their own process survive an outage that begins after its release,
// whatever their mode is.
func TestWaitersBehindALocalHolderSurviveAnOutage(t *testing.T) {
	for mode, opts := range waiterModes {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				s := &scripted{remote: remote{store}, decide: func(attempt int) bool { return attempt != 2 && attempt != 3 }}
				c := dlock.New(s, nil)
				defer c.Close()
				holder := mustLock(t, c, t.Context(), "x")
				waitersGetTheLock(t, c, opts, func() { mustUnlock(t, holder) })
				if s.attempts < 4 {
					t.Errorf("%d attempts; want two without an answer, and others", s.attempts)
				}
			})
		})
	}
}

// Waiters behind a holder of their own process survive an outage that begins before its release,
// also if they came before the holder had the lock.
func TestWaitersSurviveAnOutageOfTheRelease(t *testing.T) {
	for mode, opts := range waiterModes {
		for when, early := range map[string]bool{"before the grant": true, "after the grant": false} {
			t.Run(mode+" "+when, func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memlock.Store) {
					n := newNetwork(store)
					c := dlock.New(n, nil)
					defer n.late.Wait()
					defer c.Close()
					holder := lockSoon(c, t.Context()) // its attempt is under way
					if !early {
						<-time.After(time.Second)
						synctest.Wait()
					}
					waitersGetTheLock(t, c, opts, func() {
						n.setCut(true)
						time.AfterFunc(18*time.Second, func() { n.setCut(false) })
						if err := (<-holder).lease.Unlock(t.Context()); err == nil {
							t.Error("the release was answered in the outage")
						}
					})
				})
			})
		}
	}
}
