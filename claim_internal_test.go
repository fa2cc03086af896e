package dlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// askedStore is a store that takes a millisecond for an attempt. It remembers the first owner that asked for
// "x", and counts the subscriptions that have not ended.
type askedStore struct {
	*memlock.Store
	first         driver.Owner
	subscriptions int
}

func (s *askedStore) note(reqs ...driver.Request) {
	if reqs[0].Name == "x" && s.first == (driver.Owner{}) {
		s.first = reqs[0].Owner
	}
	<-time.After(time.Millisecond)
}

func (s *askedStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.note(req)
	return s.Store.Acquire(ctx, req)
}

func (s *askedStore) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	s.note(reqs...)
	return s.Store.AcquireAll(ctx, reqs)
}

func (s *askedStore) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	unwatch, err := s.Store.Watch(ctx, req, wake)
	if err == nil {
		s.subscriptions++
		inner := unwatch
		unwatch = func() { s.subscriptions--; inner() }
	}
	return unwatch, err
}

// TestClaimIsPassedOnEqualTerms: a caller whose time ends leaves its claim to the next one, which then asks
// as the same owner. It does not if the next one wants something else, or if either is a set of names.
// A caller that does not wait at all does not leave it either.
func TestClaimIsPassedOnEqualTerms(t *testing.T) {
	for name, test := range map[string]struct {
		first, next       []Option
		firstSet, nextSet bool
		passed            bool
	}{
		"equal terms":             {passed: true},
		"shared callers":          {first: []Option{WithShared()}, next: []Option{WithShared()}, passed: true},
		"another limit of a wait": {next: []Option{WithWait(time.Hour)}, passed: true},
		"another mode":            {next: []Option{WithShared()}},
		"another TTL":             {next: []Option{WithTTL(time.Minute)}},
		"another margin":          {next: []Option{WithMargin(time.Second)}},
		"a set after a lock":      {nextSet: true},
		"a lock after a set":      {firstSet: true},
		"a lock after a TryLock":  {first: []Option{WithWait(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &askedStore{Store: memlock.New()}
				c, other := New(store, nil), New(store.Store, nil)
				defer c.Close()
				defer other.Close()
				holder := lockX(t, other, t.Context())
				lock := func(ctx context.Context, set bool, opts ...Option) <-chan *Lease {
					if !set {
						return lockXSoon(c, ctx, opts...)
					}
					done := make(chan *Lease, 1)
					go func() {
						if leases, err := c.LockAll(ctx, []string{"x", "y"}, opts...); err != nil {
							done <- nil
						} else {
							done <- leases.leases[0]
							_ = leases.leases[1].Unlock(t.Context())
						}
					}()
					synctest.Wait()
					return done
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				first := lock(ctx, test.firstSet, test.first...)
				next := lock(t.Context(), test.nextSet, test.next...)
				if lease := <-first; lease != nil {
					t.Fatal("the first caller has the lock")
				}
				synctest.Wait()
				<-time.After(time.Second)
				_ = holder.Unlock(t.Context())
				lease := <-next
				if passed := lease.tenure.grant.Grant.Owner == store.first; passed != test.passed {
					t.Errorf("the claim was passed: %v; want %v", passed, test.passed)
				}
				_ = lease.Unlock(t.Context())
				synctest.Wait()
				checkEmpty(t, store.Store)
				if n := store.subscriptions; n != 0 {
					t.Errorf("%d subscriptions are left", n)
				}
			})
		})
	}
}

// slowToAnswer is a store without notifications that takes 100 ms for an attempt.
type slowToAnswer struct{ driver.Store }

func (s slowToAnswer) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Local = false
	return traits
}

func (s slowToAnswer) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	select {
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-time.After(100 * time.Millisecond):
		return s.Store.Acquire(ctx, req)
	}
}

// TestPassedRefusalIsKnown: while a caller makes its first attempt with the claim of another one, the
// process knows the holder that refused its claim.
func TestPassedRefusalIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c, other := New(slowToAnswer{store}, nil), New(store, nil)
		defer c.Close()
		defer other.Close()
		holder := lockX(t, other, t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond) // in its second attempt
		defer cancel()
		first, heir := lockXSoon(c, ctx), lockXSoon(c, t.Context())
		<-first
		start := time.Now()
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, ErrHeld) || time.Since(start) != 0 {
			t.Errorf("TryLock: %v after %v", err, time.Since(start))
		}
		_ = holder.Unlock(t.Context())
		_ = (<-heir).Unlock(t.Context())
	})
}

// TestWaiterBehindALostHolderHasItsTime: a caller that waited for a holder of its process, which lost the
// lock, has a RequestTimeout for its attempt.
func TestWaiterBehindALostHolderHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(slowToAnswer{memlock.New()}, nil)
		defer c.Close()
		holder := lockX(t, c, t.Context())
		next := lockXSoon(c, t.Context())
		<-time.After(2 * c.requestTimeout)
		holder.tenure.grant.lose(errRevoked)
		_ = holder.Unlock(t.Context()) // it is lost
		if lease := <-next; lease == nil {
			t.Error("the waiter failed")
		} else {
			_ = lease.Unlock(t.Context())
		}
	})
}

// TestSetQueuesIfItsProcessKnowsOfFairWaiters: a set that is refused queues if a caller of its process has
// found fair callers waiting for another one of its names.
func TestSetQueuesIfItsProcessKnowsOfFairWaiters(t *testing.T) {
	c := New(memlock.New(), nil)
	defer c.Close()
	b := &batch{bids: []bid{*bidFor(t, c, "x", c.settings(nil)), *bidFor(t, c, "y", c.settings(nil))}}
	b.blocking = &b.bids[0]
	for i := range b.bids {
		b.bids[i].occupy()
		defer b.bids[i].leaveSlot()
	}
	for _, known := range []bool{false, true} {
		b.bids[1].slot.State.fairWaiters = known
		if queues := b.shouldQueue(&HeldError{Name: "x"}); queues != known {
			t.Errorf("the set queues: %v; want %v", queues, known)
		}
	}
}

// slowDowngrade is a store that waits before a downgrade.
type slowDowngrade struct {
	*memlock.Store
	proceed chan struct{}
}

func (s *slowDowngrade) Downgrade(ctx context.Context, grant driver.Grant) error {
	<-s.proceed
	return s.Store.Downgrade(ctx, grant)
}

// TestSlotIsLeftOnce: an Unlock during a Downgrade leaves the slot to the Downgrade.
func TestSlotIsLeftOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowDowngrade{memlock.New(), make(chan struct{})}
		c := New(store, nil)
		defer c.Close()
		writer := lockX(t, c, t.Context())
		next, last := lockXSoon(c, t.Context()), lockXSoon(c, t.Context())
		go func() { _ = writer.Downgrade(t.Context()) }()
		synctest.Wait()
		_ = writer.Unlock(t.Context())
		close(store.proceed)
		lease := <-next
		synctest.Wait()
		if v := c.queue.View("x"); v.Occupant.grant != lease.tenure.grant {
			t.Fatal("the slot was left twice")
		}
		_ = lease.Unlock(t.Context())
		_ = (<-last).Unlock(t.Context())
	})
}

// TestSubscriptionsEnd: a subscription ends with the call, and with the owner for which it was made.
func TestSubscriptionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &askedStore{Store: memlock.New()}
		c, other := New(store, nil), New(store.Store, nil)
		defer c.Close()
		defer other.Close()
		check := func(when string, want int) {
			t.Helper()
			if n := store.subscriptions; n != want {
				t.Errorf("%s: %d subscriptions; want %d", when, n, want)
			}
		}
		holder := lockX(t, other, t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := lockXSoon(c, ctx)
		<-time.After(time.Second)
		check("while a caller waits", 1)
		cancel()
		<-cancelled
		check("after a caller gave up", 0)
		waiter := lockXSoon(c, t.Context())
		<-time.After(time.Second)
		_ = holder.Unlock(t.Context())
		lease := <-waiter
		check("after a caller got the lock", 0)

		_ = lease.Unlock(t.Context())
		lease = lockX(t, other, t.Context())
		y, err := other.Lock(t.Context(), "y")
		if err != nil {
			t.Fatal(err)
		}
		set := make(chan error, 1)
		go func() {
			leases, err := c.LockAll(t.Context(), []string{"x", "y"})
			if err == nil {
				err = leases.Unlock(t.Context())
			}
			set <- err
		}()
		<-time.After(time.Second)
		check("of a set that waits for one name", 1)
		_ = lease.Unlock(t.Context())
		<-time.After(time.Second)
		check("of a set that waits for another name", 1)
		_ = y.Unlock(t.Context())
		if err := <-set; err != nil {
			t.Error(err)
		}
		check("after the set", 0)

		lease = lockX(t, other, t.Context())
		b := bidFor(t, other, "x", other.settings(nil))
		b.claim.client = c
		if err := b.claim.attempt(t.Context(), c.clock.NoLaterThanNow(), time.Second); !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		if err := b.claim.subscribe(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("of a claim", 1)
		b.claim.startAnew()
		check("of a claim with a new owner", 0)
		_ = lease.Unlock(t.Context())
	})
}
