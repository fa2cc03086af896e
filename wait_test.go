package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func TestWaitLimitReturnsTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		a, b := dlock.New(store, nil), dlock.New(store, nil)
		defer a.Close()
		defer b.Close()
		lease := mustLock(t, a, t.Context(), "x")
		for which, c := range map[string]*dlock.Client{"another process": b, "the same process": a} {
			start := time.Now()
			_, err := c.Lock(t.Context(), "x", dlock.WithWait(2*time.Second))
			if _, ok := errors.AsType[*dlock.HeldError](err); !ok || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("from %s: %v; want a HeldError", which, err)
			}
			if waited := time.Since(start); waited != 2*time.Second {
				t.Errorf("from %s waited %v", which, waited)
			}
		}
		mustUnlock(t, lease)
	})
}

func TestCancelledWaitWrapsTheCause(t *testing.T) {
	cause := errors.New("the customer went away")
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%v", fair), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				a, b := dlock.New(store, nil), dlock.New(store, nil)
				defer a.Close()
				defer b.Close()
				var opts []dlock.Option
				if fair {
					opts = append(opts, dlock.WithFair())
				}
				lease := mustLock(t, a, t.Context(), "x", opts...)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				start := time.Now()
				_, err := b.Lock(ctx, "x", opts...)
				if !errors.Is(err, cause) || !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("Lock: %v; want that it wraps the cause and ErrHeld", err)
				}
				if waited := time.Since(start); waited != time.Second {
					t.Errorf("waited %v", waited)
				}
				synctest.Wait()
				for info := range store.List(t.Context(), "") {
					if info.Waiters != 0 {
						t.Errorf("%d waiters are left in the store", info.Waiters)
					}
				}
				mustUnlock(t, lease)
			})
		})
	}
}

// A waiter acquires the lock of a holder that died when its TTL ends, without a notification.
func TestWaiterNoticesExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		dead := driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: 30 * time.Second}
		if _, err := store.Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
		if waited := time.Since(start); waited < 30*time.Second || waited > 30*time.Second+100*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
}

// A release just before the subscription is not missed: the waiter tries again before it
// sleeps.
func TestReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &releasing{Store: store}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		s.release = sync.OnceFunc(func() { mustUnlock(t, lease) })
		start := time.Now()
		mine := mustLock(t, c, t.Context(), "x")
		if took := time.Since(start); took > time.Second {
			t.Errorf("the waiter had the lock %v after its release", took)
		}
		mustUnlock(t, mine)
	})
}

// releasing releases the lock at the moment at which a waiter subscribes.
type releasing struct {
	*memlock.Store
	release func()
}

func (s *releasing) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	s.release()
	return s.Store.Watch(ctx, req, wake)
}

// A waiter polls a few times in a TTL, also if the store watches expiries, and so notices an
// outage.
func TestWatchingWaiterNoticesAnOutage(t *testing.T) {
	for _, watches := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			n := newNetwork(store)
			c, other := dlock.New(watching{n, watches}, nil), dlock.New(store, nil)
			defer c.Close()
			defer other.Close()
			const ttl = 6 * time.Second
			lease := mustLock(t, other, t.Context(), "x")
			result := make(chan error, 1)
			go func() { _, err := c.Lock(t.Context(), "x", dlock.WithTTL(ttl)); result <- err }()
			time.Sleep(time.Minute)
			n.setCut(true)
			start := time.Now()
			if err := <-result; !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("Lock: %v; want ErrUnreachable", err)
			}
			if took := time.Since(start); took > 3*ttl {
				t.Errorf("the waiter noticed the outage after %v; the TTL is %v", took, ttl)
			}
			n.setCut(false)
			mustUnlock(t, lease)
		})
	}
}

// A waiter with a subscription polls about three times in a TTL, and at most once in a second.
func TestWatchingWaiterPollsSeldom(t *testing.T) {
	for ttl, most := range map[time.Duration]int{100 * time.Millisecond: 120, 30 * time.Second: 12, time.Hour: 6} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			n := newNetwork(store)
			c, other := dlock.New(watching{n, true}, nil), dlock.New(store, nil)
			defer c.Close()
			defer other.Close()
			lease := mustLock(t, other, t.Context(), "x")
			defer func() { mustUnlock(t, lease) }()
			n.mu.Lock()
			before := n.calls
			n.mu.Unlock()
			_, _ = c.Lock(t.Context(), "x", dlock.WithTTL(ttl), dlock.WithWait(75*time.Second))
			n.mu.Lock()
			defer n.mu.Unlock()
			if calls := n.calls - before; calls > most {
				t.Errorf("%d calls in 75s with a TTL of %v; want at most %d", calls, ttl, most)
			}
		})
	}
}

// watching is a store with or without Traits.WatchesExpiry.
type watching struct {
	*network
	expiry bool
}

func (s watching) Traits() driver.Traits {
	traits := s.network.Traits()
	traits.WatchesExpiry = s.expiry
	return traits
}

func TestWaitersPollWithoutNotifications(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &counting{Store: inner}
		c, other := dlock.New(polled{store}, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		done := make(chan time.Time, 1)
		go func() {
			mustUnlock(t, mustLock(t, c, t.Context(), "x"))
			done <- time.Now()
		}()
		time.Sleep(10 * time.Minute)
		if n := store.acquires.Load(); n > 10*60*2 {
			t.Errorf("polled %d times in ten minutes", n)
		}
		released := time.Now()
		mustUnlock(t, lease)
		if late := (<-done).Sub(released); late > 2*time.Second {
			t.Errorf("noticed the release after %v", late)
		}
	})
}

// polled is a store without notifications.
type polled struct{ driver.Store }

// A waiter polls a holder whose release sends no notification, also in a store that can watch.
func TestSilentHolderIsPolled(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &silent{Store: store}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		var released time.Time
		time.AfterFunc(10*time.Second, func() {
			released = time.Now()
			mustUnlock(t, lease)
		})
		mine := mustLock(t, c, t.Context(), "x")
		if late := time.Since(released); late > 300*time.Millisecond {
			t.Errorf("acquired %v after the release; want a poll in between", late)
		}
		if s.attempts < 30 || s.attempts > 200 {
			t.Errorf("%d attempts in ten seconds", s.attempts)
		}
		mustUnlock(t, mine)
	})
}

// silent is a store whose holders send no notifications.
type silent struct {
	*memlock.Store
	attempts int
}

func (s *silent) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.attempts++
	grant, err := s.Store.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Silent = true
	}
	return grant, err
}

func (*silent) Watch(context.Context, driver.Request, func()) (func(), error) {
	panic("nobody would be woken")
}
