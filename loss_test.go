package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// The lease ends before its TTL does, counted from when the last renewal was sent.
func TestUnreachableStoreEndsTheLeaseInTime(t *testing.T) {
	for _, margin := range []time.Duration{0, 5 * time.Second} {
		t.Run(fmt.Sprintf("margin=%v", margin), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				n := newNetwork(store)
				var renewed atomic.Int64 // when the last successful renewal was reported
				c := dlock.New(n, &dlock.Options{Hooks: dlock.Hooks{Renewed: func(e dlock.Event) {
					if e.Err == nil {
						renewed.Store(time.Now().UnixNano())
					}
				}}})
				defer c.Close()
				var opts []dlock.Option
				if margin > 0 {
					opts = append(opts, dlock.WithMargin(margin))
				}
				lease := mustLock(t, c, t.Context(), "x", opts...)
				time.Sleep(95 * time.Second)
				n.setCut(true)
				<-lease.Context().Done()
				since := time.Since(time.Unix(0, renewed.Load()))
				want := 30*time.Second - max(margin, 302*time.Millisecond)
				// The answer came after the renewal was sent, so that less than all of it is left.
				if since >= want || since < want-10*time.Millisecond {
					t.Errorf("lost %v after the last renewal was answered; want just before %v", since, want)
				}
				if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
					t.Errorf("cause %v", cause)
				}
				n.setCut(false)
				if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
					t.Errorf("Unlock: %v", err)
				}
				time.Sleep(time.Second) // the late release arrives
			})
		})
	}
}

// An outage that is shorter than the TTL does not end the lease.
func TestLeaseSurvivesAShortOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		failures := 0
		c := dlock.New(n, &dlock.Options{Hooks: dlock.Hooks{Renewed: func(e dlock.Event) {
			if errors.Is(e.Err, dlock.ErrUnreachable) {
				failures++
			}
		}}})
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		for range 10 {
			n.setCut(true)
			time.Sleep(18 * time.Second)
			n.setCut(false)
			time.Sleep(12 * time.Second)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("lost: %v", context.Cause(lease.Context()))
		}
		if failures == 0 {
			t.Error("no renewal failed: there was no outage")
		}
		mustUnlock(t, lease)
	})
}

func TestBrokenLockEndsAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, c, t.Context(), "x")
		if err := other.Break(t.Context(), "x", lease.Token()+other.Traits().TokenStep); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Break with another token: %v", err)
		}
		if err := other.Break(t.Context(), "x", lease.Token()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		taken := mustLock(t, other, t.Context(), "x", dlock.WithWait(0))
		<-lease.Context().Done()
		if after := time.Since(start); after > 10*time.Second {
			t.Errorf("the holder found out after %v", after)
		}
		if taken.Token() <= lease.Token() {
			t.Errorf("token %d after %d", taken.Token(), lease.Token())
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock of a broken lock: %v", err)
		}
		mustUnlock(t, taken)
	})
}

// A grant that arrives after its trust deadline is rejected.
func TestLateGrantIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(slow{newNetwork(store), 3 * time.Second}, nil)
		defer c.Close()
		_, err := c.Lock(t.Context(), "x", dlock.WithTTL(2*time.Second))
		if !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Lock: %v", err)
		}
		time.Sleep(10 * time.Second)
	})
}

// slow delays replies.
type slow struct {
	*network
	by time.Duration
}

func (s slow) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.network.Acquire(ctx, req)
	time.Sleep(s.by)
	return grant, err
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

// reporting is a store that reports losses, as a store with sessions does.
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

// The report of a loss for an attempt that was refused does not end the lease.
func TestReportedLossOfAnEarlierAttemptIsIgnored(t *testing.T) {
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
			t.Errorf("the report ended the lease: %v", context.Cause(lease.Context()))
		}
		mustUnlock(t, lease)
	})
}
