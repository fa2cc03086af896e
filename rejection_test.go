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

// lateRejection rejects attempts at the moment at which their time ends.
type lateRejection struct {
	remote
	reason  error
	rejects atomic.Bool
}

func (s *lateRejection) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if !s.rejects.Load() {
		return s.Store.Acquire(ctx, req)
	}
	<-ctx.Done()
	return driver.Grant{}, s.reason
}

var rejections = []error{
	fmt.Errorf("%w: wrong password", driver.ErrDenied),
	driver.ErrUnsupported,
	driver.ErrClosed,
	errors.New("ERR the counter of tokens is too large"),
}

// A store that rejects an attempt has answered it, even if the time of the attempt ends at that
// moment. This holds for the first attempt and for those of a waiter.
func TestRejectionAtTheEndOfTheTimeIsReported(t *testing.T) {
	for name, lock := range map[string]func(context.Context, *dlock.Client) (*dlock.Lease, error){
		"cancelled": func(ctx context.Context, c *dlock.Client) (*dlock.Lease, error) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return c.Lock(ctx, "x")
		},
		"deadline": func(ctx context.Context, c *dlock.Client) (*dlock.Lease, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Lock(ctx, "x")
		},
		"limit": func(ctx context.Context, c *dlock.Client) (*dlock.Lease, error) {
			return c.Lock(ctx, "x", dlock.WithWait(time.Second))
		},
		"RequestTimeout": func(ctx context.Context, c *dlock.Client) (*dlock.Lease, error) { return c.Lock(ctx, "x") },
	} {
		for _, reason := range rejections {
			for _, waits := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, waits=%v, %v", name, waits, reason), func(t *testing.T) {
					bubble(t, func(t *testing.T, store *memlock.Store) {
						s := &lateRejection{remote: remote{store}, reason: reason}
						c, other := dlock.New(s, nil), dlock.New(store, nil)
						defer c.Close()
						defer other.Close()
						if waits {
							lease := mustLock(t, other, t.Context(), "x")
							time.AfterFunc(time.Second/2, func() {
								s.rejects.Store(true)
								mustUnlock(t, lease)
							})
						} else {
							s.rejects.Store(true)
						}
						_, err := lock(t.Context(), c)
						if !errors.Is(err, reason) || errors.Is(err, dlock.ErrUnreachable) || errors.Is(err, dlock.ErrHeld) {
							t.Errorf("Lock: %v; want the reason alone", err)
						}
					})
				})
			}
		}
	}
}

// A store that ends a call with the cause of its caller's context has not answered.
func TestCauseOfTheCallerIsNotARejection(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		cause := errors.New("shutting down")
		c := dlock.New(&abandoning{slowStore{remote: remote{store}}}, nil)
		defer c.Close()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := c.Lock(ctx, "x")
		if want := `locking "x": the store has not answered: shutting down`; err == nil || err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("Lock: %v; want %s", err, want)
		}
	})
}

// abandoning is a store that never answers an attempt.
type abandoning struct{ slowStore }

func (*abandoning) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, context.Cause(ctx)
}

// grantingUnheard is a store that grants, but whose answers never arrive.
type grantingUnheard struct{ slowStore }

func (s *grantingUnheard) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if _, err := s.Store.Acquire(ctx, req); err != nil {
		return driver.Grant{}, err
	}
	<-ctx.Done()
	return driver.Grant{}, context.Cause(ctx)
}

func (s *grantingUnheard) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if _, err := s.Store.AcquireAll(ctx, reqs); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// An errgroup ends the calls of its other functions with the error of the first one that failed. That
// is no answer to them, although it may be an error of dlock: what the store granted is released.
func TestErrorOfAnotherLockIsNoAnswer(t *testing.T) {
	cause := fmt.Errorf("another lock: %w", &driver.HeldError{Name: "another"})
	for name, lock := range map[string]func(context.Context, *dlock.Client) error{
		"Lock":    func(ctx context.Context, c *dlock.Client) error { _, err := c.Lock(ctx, "x"); return err },
		"TryLock": func(ctx context.Context, c *dlock.Client) error { _, err := c.TryLock(ctx, "x"); return err },
		"LockAll": func(ctx context.Context, c *dlock.Client) error {
			_, err := c.LockAll(ctx, []string{"x", "y"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(&grantingUnheard{slowStore{remote: remote{store}}}, nil)
				defer c.Close()
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				if err := lock(ctx, c); !errors.Is(err, cause) {
					t.Errorf("got: %v; want the cause", err)
				}
			})
		})
	}
}

// The same for a call in the local queue, if the other lock was behind a call that the store did not
// answer.
func TestErrorOfAnotherQueueIsNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		network := newNetwork(memlock.New())
		other := dlock.New(network, nil)
		defer other.Close()
		network.setCut(true)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = other.TryLock(t.Context(), "other")
		}()
		synctest.Wait()
		_, cause := other.Lock(t.Context(), "other")
		if !errors.Is(cause, dlock.ErrUnreachable) {
			t.Fatalf("got: %v; want %v", cause, dlock.ErrUnreachable)
		}
		<-ended

		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, cause) || !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("got: %v; want the cause and the holder", err)
		}
		mustUnlock(t, lease)
	})
}

// The same for Downgrade, which may not take the error of another lock for the loss of its own.
func TestErrorOfAnotherLockIsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		cause := fmt.Errorf("another lock: %w", dlock.ErrNotHeld)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := lease.Downgrade(ctx); !errors.Is(err, cause) {
			t.Errorf("Downgrade: %v; want the cause", err)
		}
		if err := context.Cause(lease.Context()); err != nil {
			t.Errorf("the lock counts as lost: %v", err)
		}
		mustUnlock(t, lease)
	})
}

// rejecting is a store that rejects acquisitions, and is slow to release.
type rejecting struct {
	*memlock.Store
	reason error
}

func (r rejecting) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.reason
}

func (r rejecting) Release(ctx context.Context, grant driver.Grant) error {
	time.Sleep(time.Second)
	return r.Store.Release(ctx, grant)
}

// TryLock behind an attempt that the store rejected returns the reason, not that the lock is
// held.
func TestTryLockBehindARejectedAttemptReturnsTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		reason := errors.New("no permission")
		c := dlock.New(rejecting{store, reason}, nil)
		defer c.Close()
		for range 2 {
			if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, reason) || errors.Is(err, dlock.ErrHeld) {
				t.Errorf("TryLock: %v; want %v", err, reason)
			}
		}
	})
}

// slowDenial is a remote store that rejects every attempt, and is slow to say so.
type slowDenial struct{ slowStore }

func (s *slowDenial) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	select {
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-time.After(s.delay):
		return driver.Grant{}, driver.ErrDenied
	}
}

// Callers behind attempts that the store rejected are not in an outage: each has a
// RequestTimeout for its own attempt.
func TestRejectedAttemptsAreNotAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&slowDenial{slowStore{remote: remote{store}, delay: 900 * time.Millisecond}}, nil)
		defer c.Close()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, dlock.ErrDenied) || errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("Lock: %v; want ErrDenied", err)
				}
			})
		}
		all.Wait()
	})
}
