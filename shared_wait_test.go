package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// TestSharedTryLockBesideARefusedExclusiveOne: shared holders of another process refuse an exclusive
// TryLock. That says nothing about a shared one of the same process, which asks the store itself. An
// exclusive caller that waits has a place in the store, so that a shared TryLock is refused.
func TestSharedTryLockBesideARefusedExclusiveOne(t *testing.T) {
	lockShared := map[string]func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error){
		"one name": func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error) {
			lease, err := c.TryLock(ctx, "x", dlock.WithShared())
			if err != nil {
				return nil, err
			}
			return lease.Unlock, nil
		},
		"several names": func(c *dlock.Client, ctx context.Context) (func(context.Context) error, error) {
			leases, err := c.LockAll(ctx, []string{"x", "y"}, dlock.WithShared(), dlock.WithWait(0))
			if err != nil {
				return nil, err
			}
			return leases.Unlock, nil
		},
	}
	for name, call := range lockShared {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				c, other := dlock.New(&slowStore{remote: remote{inner}, delay: 100 * time.Millisecond}, nil), dlock.New(inner, nil)
				defer c.Close()
				defer other.Close()
				reader := mustLock(t, other, t.Context(), "x", dlock.WithShared())
				exclusive := lockSoon(c, t.Context(), dlock.WithWait(0))
				unlock, err := call(c, t.Context())
				if err != nil {
					t.Errorf("a shared lock beside a shared one: %v", err)
				} else if err := unlock(t.Context()); err != nil {
					t.Error(err)
				}
				if got := <-exclusive; !errors.Is(got.err, dlock.ErrHeld) {
					t.Errorf("an exclusive lock beside a shared one: %v", got.err)
				}

				waiter := lockSoon(c, t.Context())
				if _, err := call(c, t.Context()); !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("a shared lock while an exclusive caller waits: %v", err)
				}
				mustUnlock(t, reader)
				mustUnlock(t, (<-waiter).lease)
			})
		})
	}
}

// failing is a store that answers exclusive requests with an error, the first of them after a long
// time.
type failing struct {
	slowStore
	first time.Duration
}

func (s *failing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.acquires.Add(1) == 1 {
		time.Sleep(s.first)
	} else {
		time.Sleep(s.delay)
	}
	if !req.Mode.Shared {
		return driver.Grant{}, fmt.Errorf("%w: the disk is full", driver.ErrMisconfigured)
	}
	return s.Store.Acquire(ctx, req)
}

// TestOutcomesBeforeASharedCallerAreNoOutage: a shared caller that has waited for the outcomes of
// several callers before it, each within the RequestTimeout, has not met an outage.
func TestOutcomesBeforeASharedCallerAreNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &failing{slowStore{remote: remote{inner}, delay: 500 * time.Millisecond}, 900 * time.Millisecond}
		c := dlock.New(store, &dlock.Options{RequestTimeout: time.Second})
		defer c.Close()
		first := lockSoon(c, t.Context()) // until 0.9 s
		time.Sleep(500 * time.Millisecond)
		second := lockSoon(c, t.Context()) // until 1.4 s
		time.Sleep(100 * time.Millisecond)
		reader := <-lockSoon(c, t.Context(), dlock.WithShared()) // until 1.9 s
		if reader.err != nil {
			t.Errorf("a shared caller behind two calls that the store has answered: %v", reader.err)
		} else {
			mustUnlock(t, reader.lease)
		}
		for _, writer := range []<-chan lockResult{first, second} {
			if got := <-writer; !errors.Is(got.err, dlock.ErrMisconfigured) {
				t.Errorf("an exclusive caller: %v; want ErrMisconfigured", got.err)
			}
		}
	})
}

// neverAnswers does not answer an attempt. A release fails at once.
type neverAnswers struct{ slowStore }

func (s *neverAnswers) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrUnreachable, ctx.Err())
}

func (s *neverAnswers) Release(context.Context, driver.Grant) error { return driver.ErrUnreachable }

// TestSharedCallerLearnsOfAnOutage: a shared caller behind a call that the store did not answer does
// not wait for another RequestTimeout.
func TestSharedCallerLearnsOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		const limit = time.Second
		c := dlock.New(&neverAnswers{slowStore{remote: remote{inner}}}, &dlock.Options{RequestTimeout: limit})
		defer c.Close()
		writer := lockSoon(c, t.Context())
		time.Sleep(limit / 2)
		began := time.Now()
		_, err := c.Lock(t.Context(), "x", dlock.WithShared())
		if took := time.Since(began); !errors.Is(err, dlock.ErrUnreachable) || took > limit {
			t.Errorf("a shared caller in an outage: %v after %v; want ErrUnreachable within %v", err, took, limit)
		}
		if got := <-writer; !errors.Is(got.err, dlock.ErrUnreachable) {
			t.Errorf("an exclusive caller in an outage: %v", got.err)
		}
		synctest.Wait()
	})
}
