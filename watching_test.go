package dlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// A waiter polls a few times in a TTL, also where the store watches expiries, and
// so notices that the store is gone.
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

// watching is a store that says whether it watches expiries.
type watching struct {
	*network
	expiry bool
}

func (s watching) Traits() driver.Traits {
	traits := s.network.Traits()
	traits.WatchesExpiry = s.expiry
	return traits
}

// Polling while watching stays cheap: about three attempts in a TTL, and not more
// than one in a second.
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

// releasing frees the lock at the very moment in which a waiter subscribes.
type releasing struct {
	*memlock.Store
	release func()
}

func (s *releasing) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	s.release()
	return s.Store.Watch(ctx, req, wake)
}

// A lock that is released just before the waiter has subscribed is not missed: the
// waiter tries again before it sleeps.
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
			t.Errorf("the waiter had the lock %v after it was released", took)
		}
		mustUnlock(t, mine)
	})
}
