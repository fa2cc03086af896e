package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// prepared counts releases, and answers each call with the error that is set for it.
type prepared struct {
	*memlock.Store
	acquire  error // nil lets the store answer
	all      error
	release  error
	releases atomic.Int64
}

func (s *prepared) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.acquire != nil {
		return driver.Grant{}, s.acquire
	}
	return s.Store.Acquire(ctx, req)
}

func (s *prepared) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if s.all != nil {
		return nil, s.all
	}
	return s.Store.AcquireAll(ctx, reqs)
}

func (s *prepared) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	if s.release != nil {
		return s.release
	}
	return s.Store.Release(ctx, grant)
}

// An attempt is undone unless its error proves that it changed nothing.
func TestOnlyAttemptsOfUnknownOutcomeAreUndone(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		err      error
		releases int64
	}{
		"unsupported": {fmt.Errorf("%w: in a cluster", driver.ErrUnsupported), 0},
		"bad TTL":     {driver.ErrBadTTL, 0},
		"not sent":    {driver.NotSent(fmt.Errorf("%w: %w", driver.ErrUnreachable, refused)), 0},
		"wrapped":     {fmt.Errorf("acquire: %w", driver.NotSent(driver.ErrUnreachable)), 0},
		"one of many": {errors.Join(driver.NotSent(driver.ErrUnreachable), driver.ErrUnreachable), 1},
		"of a member": {errors.Join(fmt.Errorf("member 1: %w", driver.ErrUnsupported), errors.New("member 2")), 1},
		"unreachable": {driver.ErrUnreachable, 1},
		"other":       {errors.New("no space"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				s := &prepared{Store: store, acquire: test.err}
				c := dlock.New(s, nil)
				if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, test.err) {
					t.Errorf("TryLock: %v; want %v", err, test.err)
				}
				_ = c.Close()
				if got := s.releases.Load(); got != test.releases {
					t.Errorf("%d releases; want %d", got, test.releases)
				}
			})
		})
	}
}

// A lock that was broken is released all the same: an earlier attempt of its owner, whose answer was
// lost, may still be on its way, and the store undoes it only after a release.
func TestBrokenLockIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &prepared{Store: store}
		c := dlock.New(s, nil)
		lease := mustLock(t, c, t.Context(), "x")
		if err := store.Break(t.Context(), "x", lease.Token()); err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Unlock: %v; want ErrLost", err)
		}
		_ = c.Close()
		if got := s.releases.Load(); got != 1 {
			t.Errorf("%d releases; want one", got)
		}
	})
}

// A store that cannot acquire a set in one step has done nothing, so that nothing is undone.
func TestUnsupportedBatchIsNotUndone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &prepared{Store: store, all: driver.ErrUnsupported}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "b")
		if _, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithWait(0)); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("LockAll: %v; want ErrHeld", err)
		}
		_ = c.Close()
		if got := s.releases.Load(); got != 1 {
			t.Errorf("%d releases; want one, of the name that was acquired", got)
		}
		mustUnlock(t, lease)
	})
}

// A LockAll takes no place in a store without a queue of its own, so that it gives none up if
// shared holders refuse it.
func TestRefusedBatchIsNotUndone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &prepared{Store: store}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "b", dlock.WithShared())
		if _, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithWait(time.Second)); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("LockAll: %v; want ErrHeld", err)
		}
		_ = c.Close()
		if got := s.releases.Load(); got != 0 {
			t.Errorf("%d releases; want none, because the store kept nothing", got)
		}
		mustUnlock(t, lease)
	})
}

// A store that rejects the user, or was closed, rejects the release as well: it is not asked
// again and again while other callers wait for the outcome.
func TestRejectedReleaseIsNotRepeated(t *testing.T) {
	for _, reason := range []error{driver.ErrDenied, driver.ErrClosed} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			s := &prepared{Store: store, acquire: reason, release: reason}
			c := dlock.New(s, nil)
			start := time.Now()
			for range 2 {
				if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, reason) {
					t.Errorf("TryLock: %v; want %v", err, reason)
				}
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("two calls took %v; the store answered at once", took)
			}
			_ = c.Close()
			if got := s.releases.Load(); got != 2 {
				t.Errorf("%d releases; want one for each attempt", got)
			}
		})
	}
}
