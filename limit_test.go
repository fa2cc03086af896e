package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// distant is a store whose answers take a while. A call whose context ends first has no answer,
// and is not carried out.
type distant struct {
	remote
	delay   time.Duration
	down    atomic.Bool // no call is answered
	refuses atomic.Bool // no connection can be made: every call fails at once
}

const roundTrip = 10 * time.Millisecond

func newDistant(store *memlock.Store) *distant {
	return &distant{remote: remote{store}, delay: roundTrip}
}

func (s *distant) answer(ctx context.Context) error {
	var answered <-chan time.Time
	switch {
	case s.refuses.Load():
		return driver.NotSent(driver.ErrUnreachable)
	case !s.down.Load():
		answered = time.After(s.delay)
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return driver.NotSent(fmt.Errorf("%w: %w", driver.ErrUnreachable, context.Cause(ctx)))
	}
}

func (s *distant) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.answer(ctx); err != nil {
		return driver.Grant{}, err
	}
	return s.Store.Acquire(ctx, req)
}

func (s *distant) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return s.Store.AcquireAll(ctx, reqs)
}

func (s *distant) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Release(ctx, grant)
}

// limitedCalls are the calls whose limit or deadline may end while another caller of the process has
// a call under way.
var limitedCalls = map[string]func(ctx context.Context, c *dlock.Client, limit time.Duration) error{
	"Lock": func(ctx context.Context, c *dlock.Client, limit time.Duration) error {
		_, err := c.Lock(ctx, "x", dlock.WithWait(limit))
		return err
	},
	"shared": func(ctx context.Context, c *dlock.Client, limit time.Duration) error {
		_, err := c.Lock(ctx, "x", dlock.WithWait(limit), dlock.WithShared())
		return err
	},
	"LockAll": func(ctx context.Context, c *dlock.Client, limit time.Duration) error {
		_, err := c.LockAll(ctx, []string{"x", "y"}, dlock.WithWait(limit))
		return err
	},
	"deadline": func(ctx context.Context, c *dlock.Client, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := c.Lock(ctx, "x")
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w; want DeadlineExceeded, too", err)
		}
		return err
	},
}

// heldBy checks that err describes the holder with that token, and is no outage.
func heldBy(t *testing.T, what string, err error, token uint64) {
	t.Helper()
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok || held.Name != "x" || held.Token != token || errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("%s: %v; want a HeldError of token %d", what, err, token)
	}
}

func unreachable(t *testing.T, what string, err error) {
	t.Helper()
	if errors.Is(err, dlock.ErrHeld) || !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("%s: %v; want ErrUnreachable", what, err)
	}
}

// undecided checks that err says no more than that the caller's time ended before the store answered.
func undecided(t *testing.T, what string, err error) {
	t.Helper()
	if errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v; want DeadlineExceeded, and no outage", what, err)
	}
}

// unlockSoon unlocks in another goroutine.
func unlockSoon(t *testing.T, all *sync.WaitGroup, lease *dlock.Lease) {
	all.Go(func() { mustUnlock(t, lease) })
}

// TestLimitDuringAReleaseIsHeld: a limit that ends while the holder's release is under way is no
// outage.
func TestLimitDuringAReleaseIsHeld(t *testing.T) {
	for name, call := range limitedCalls {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(newDistant(store), nil)
				defer c.Close()
				lease := mustLock(t, c, t.Context(), "x", notHandedOver)
				var all sync.WaitGroup
				all.Go(func() { heldBy(t, name, call(t.Context(), c, 15*time.Millisecond), lease.Token()) })
				time.Sleep(roundTrip)
				unlockSoon(t, &all, lease) // until 20 ms
				all.Wait()
			})
		})
	}
}

// TestLimitDuringAnAttemptIsHeld: a limit that ends while the next caller of the process asks for a lock
// that was released is no outage, and neither is a limit that ends during the caller's own attempt.
func TestLimitDuringAnAttemptIsHeld(t *testing.T) {
	for name, call := range limitedCalls {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, own attempt %v", name, own), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memlock.Store) {
					c := dlock.New(newDistant(store), nil)
					defer c.Close()
					lease := mustLock(t, c, t.Context(), "x", notHandedOver)
					var next <-chan lockResult
					if !own {
						next = lockSoon(c, t.Context())
					}
					var all sync.WaitGroup
					unlockSoon(t, &all, lease) // until 10 ms; the next attempt takes 10 ms more
					all.Go(func() { heldBy(t, name, call(t.Context(), c, 15*time.Millisecond), lease.Token()) })
					all.Wait()
					if !own {
						mustUnlock(t, (<-next).lease)
					}
				})
			})
		}
	}
}

// TestLimitBehindARefusalIsHeld: what the store said to a caller that has left is the answer for a
// caller whose limit ends during the next attempt.
func TestLimitBehindARefusalIsHeld(t *testing.T) {
	for name, call := range limitedCalls {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c, other := dlock.New(newDistant(store), nil), dlock.New(store, nil)
				defer c.Close()
				defer other.Close()
				lease := mustLock(t, other, t.Context(), "x")
				refused := lockSoon(c, t.Context(), dlock.WithWait(0)) // until 10 ms
				var all sync.WaitGroup
				next := lockSoon(c, t.Context()) // asks until 20 ms
				heldBy(t, "TryLock", (<-refused).err, lease.Token())
				all.Go(func() { heldBy(t, name, call(t.Context(), c, 5*time.Millisecond), lease.Token()) })
				all.Wait()
				mustUnlock(t, lease)
				mustUnlock(t, (<-next).lease)
			})
		})
	}
}

// TestShortLimitsAreHeld: callers whose limits are shorter than a round trip learn the last holder,
// also if several attempts in a row were given up.
func TestShortLimitsAreHeld(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(newDistant(store), nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", notHandedOver)
		var all sync.WaitGroup
		for i := range 20 { // the limits end 4 ms after each other, and each caller asks after the one before
			all.Go(func() {
				_, err := c.Lock(t.Context(), "x", dlock.WithWait(time.Duration(i+1)*4*time.Millisecond))
				heldBy(t, fmt.Sprint("caller ", i), err, lease.Token())
			})
			synctest.Wait()
		}
		mustUnlock(t, lease)
		all.Wait()
	})
}

// TestNoAnswerForLongIsNotHeld: if the store has not answered for longer than a moment when a limit
// ends, the lock is not known to be held, whether a release or an attempt is under way.
func TestNoAnswerForLongIsNotHeld(t *testing.T) {
	const moment = 250 * time.Millisecond
	for name, call := range limitedCalls {
		for _, release := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, release %v", name, release), func(t *testing.T) {
				bubble(t, func(t *testing.T, inner *memlock.Store) {
					store := newDistant(inner)
					c := dlock.New(store, &dlock.Options{RequestTimeout: time.Second})
					defer c.Close()
					lease := mustLock(t, c, t.Context(), "x", notHandedOver)
					next := lockSoon(c, t.Context())
					var all sync.WaitGroup
					all.Go(func() { heldBy(t, "soon", call(t.Context(), c, moment-time.Millisecond), lease.Token()) })
					all.Go(func() { unreachable(t, "later", call(t.Context(), c, moment+roundTrip)) })
					synctest.Wait()
					store.down.Store(release)
					unlockSoon(t, &all, lease)
					synctest.Wait()
					store.down.Store(true) // after the release was sent
					time.Sleep(2 * moment)
					store.down.Store(false)
					all.Wait()
					if got := <-next; got.err == nil {
						mustUnlock(t, got.lease)
					}
				})
			})
		}
	}
}

// TestGivenUpAttemptsDoNotProlongTheHolder: in an outage, callers that give up one after the other do
// not pass on for ever what the first of them knew.
func TestGivenUpAttemptsDoNotProlongTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := newDistant(inner)
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", notHandedOver)
		next := lockSoon(c, t.Context(), dlock.WithWait(25*time.Millisecond))
		unlocked := time.Now()
		var all sync.WaitGroup
		unlockSoon(t, &all, lease)
		synctest.Wait()
		store.down.Store(true)
		for range 40 {
			after := lockSoon(c, t.Context(), dlock.WithWait(20*time.Millisecond))
			got := <-next
			if took := time.Since(unlocked); took < 240*time.Millisecond {
				heldBy(t, took.String(), got.err, lease.Token())
			} else if took > 260*time.Millisecond && (got.err == nil || errors.Is(got.err, dlock.ErrHeld)) {
				t.Errorf("after %v: %v; want an error other than ErrHeld", took, got.err)
			}
			next = after
			time.Sleep(time.Millisecond)
		}
		<-next
		all.Wait()
	})
}

// TestFailureIsNotHeld: an attempt that fails is an outage, also a moment after a release.
func TestFailureIsNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := newDistant(inner)
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", notHandedOver)
		var all sync.WaitGroup
		for i := range 3 { // the first asks until the end
			all.Go(func() {
				_, err := c.Lock(t.Context(), "x", dlock.WithWait(time.Duration(50-i)*time.Millisecond))
				unreachable(t, "Lock", err)
			})
			synctest.Wait()
		}
		unlockSoon(t, &all, lease)
		synctest.Wait()
		store.refuses.Store(true)
		all.Wait()
	})
}

// TestLostLockIsNotHeld: a limit that ends during the attempt after a loss does not name the lost
// holder.
func TestLostLockIsNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := newDistant(inner)
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		next := lockSoon(c, t.Context(), dlock.WithWait(2*time.Second))
		<-lease.Context().Done()
		_, err := c.Lock(t.Context(), "x", dlock.WithWait(5*time.Millisecond))
		undecided(t, "Lock", err)
		if got := <-next; got.err != nil {
			t.Error(got.err)
		} else {
			mustUnlock(t, got.lease)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock of a lost lock: %v", err)
		}
	})
}

// TestLimitBehindAPermitIsHeld: a caller whose limit ends while the next caller asks for a permit learns
// which holder got the last one, unless that was long ago.
func TestLimitBehindAPermitIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := newDistant(inner)
		c := dlock.New(store, nil)
		defer c.Close()
		time.Sleep(roundTrip)                                 // the clock of a client begins at zero
		first := lockSoon(c, t.Context(), dlock.WithLimit(3)) // until 10 ms
		second := lockSoon(c, t.Context(), dlock.WithLimit(3))
		lease := (<-first).lease
		store.down.Store(true)
		for _, limit := range []time.Duration{5 * time.Millisecond, 300 * time.Millisecond} {
			_, err := c.Lock(t.Context(), "x", dlock.WithLimit(3), dlock.WithWait(limit))
			if limit < roundTrip {
				heldBy(t, limit.String(), err, lease.Token())
			} else {
				unreachable(t, limit.String(), err)
			}
		}
		store.down.Store(false)
		if got := <-second; got.err == nil {
			mustUnlock(t, got.lease)
		}
		mustUnlock(t, lease)
	})
}

// TestWriterBehindAReaderIsHeld: a writer whose limit ends while another writer asks for the lock learns
// which reader of the process has it. A reader does not.
func TestWriterBehindAReaderIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(newDistant(inner), nil)
		defer c.Close()
		time.Sleep(roundTrip)                                 // the clock of a client begins at zero
		first := lockSoon(c, t.Context(), dlock.WithShared()) // until 10 ms
		second := lockSoon(c, t.Context())                    // asks until 20 ms
		reader := (<-first).lease
		var all sync.WaitGroup
		for _, shared := range []bool{true, false} {
			all.Go(func() {
				opts := []dlock.Option{dlock.WithWait(5 * time.Millisecond)}
				if shared {
					_, err := c.Lock(t.Context(), "x", append(opts, dlock.WithShared())...)
					undecided(t, "a reader", err)
					return
				}
				_, err := c.Lock(t.Context(), "x", opts...)
				heldBy(t, "a writer", err, reader.Token())
			})
		}
		all.Wait()
		mustUnlock(t, reader)
		mustUnlock(t, (<-second).lease)
	})
}
