package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// reporting is a store that knows of losses, as one with a session does.
type reporting struct {
	*memlock.Store
	lost []func() // of each attempt
}

func (s *reporting) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.ReportsLoss = true
	return traits
}

func (s *reporting) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.lost = append(s.lost, req.Lost)
	return s.Store.Acquire(ctx, req)
}

func TestReportedLossEndsTheLeaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &reporting{Store: inner}
		var lost int
		c := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{Lost: func(dlock.Event) { lost++ }}})
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		start := time.Now()
		store.lost[0]()
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) || time.Since(start) != 0 {
			t.Errorf("after %v the cause is %v", time.Since(start), cause)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock: %v", err)
		}
		synctest.Wait()
		if lost != 1 {
			t.Errorf("the hook was called %d times", lost)
		}
	})
}

// What is reported for an attempt that was refused ends nothing.
func TestReportedLossOfAnEarlierAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &reporting{Store: inner}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		taken := mustLock(t, other, t.Context(), "x")
		got := make(chan *dlock.Lease)
		go func() { got <- mustLock(t, c, t.Context(), "x") }()
		synctest.Wait()
		store.lost[0]()
		mustUnlock(t, taken)
		lease := <-got
		store.lost[0]()
		synctest.Wait()
		if err := lease.Context().Err(); err != nil {
			t.Errorf("it ended the lease: %v", context.Cause(lease.Context()))
		}
		mustUnlock(t, lease)
	})
}

// losing is a store that loses a lock while it is passed on, and then knows it.
type losing struct{ reporting }

func (s *losing) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	next, err := s.Store.Pass(ctx, grant, req)
	if err == nil {
		err = s.Store.Release(ctx, next)
		req.Lost()
	}
	return next, err
}

// TestPassedLockIsLostBeforeItBegins: who waits for a lock that was lost on the way
// asks for it again.
func TestPassedLockIsLostBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(&losing{reporting{Store: inner}}, nil)
		defer c.Close()
		_, next, err := passOn(t, c, t.Context())
		if err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if next.err != nil {
			t.Fatalf("Lock: %v", next.err)
		}
		if err := next.lease.Context().Err(); err != nil {
			t.Errorf("the lease is over: %v", err)
		}
		mustUnlock(t, next.lease)
	})
}
