package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func newNetwork(store full) *network {
	return &network{inner: store, random: rand.New(rand.NewPCG(1, 1))}
}

// The lease is over before its TTL is, counted from when it was last sent for.
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
				if since > want || since < want-10*time.Millisecond {
					t.Errorf("lost %v after the last renewal; want just before %v", since, want)
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

// A network that is away for less than the TTL costs nothing.
func TestShortOutageIsSurvived(t *testing.T) {
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
			t.Error("no renewal failed: the outage was none")
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
		if err := other.Break(t.Context(), "x", lease.Token()+1); !errors.Is(err, dlock.ErrNotHeld) {
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

// A lock that is found lost only when it is unlocked is lost too.
func TestUnlockFindsTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		if err := c.Break(t.Context(), "x", lease.Token()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) || !errors.Is(err, dlock.ErrLost) {
				t.Errorf("Unlock: %v; want ErrNotHeld and ErrLost", err)
			}
		}
	})
}

// An answer that comes after the lease would be over is not believed.
func TestGrantThatComesTooLate(t *testing.T) {
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

// A release whose answer got lost was one all the same.
func TestUnlockAfterALostReply(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&deafOnce{network: newNetwork(store)}, nil)
		defer c.Close()
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	})
}

// deafOnce loses the reply of the first release.
type deafOnce struct {
	*network
	done atomic.Bool
}

func (d *deafOnce) Release(ctx context.Context, grant driver.Grant) error {
	err := d.network.Release(ctx, grant)
	if d.done.CompareAndSwap(false, true) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// Unlock says the same however often it is called.
func TestUnlockThatFailsSaysSoTwice(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		n.setCut(true)
		for range 2 {
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("Unlock: %v", err)
			}
		}
		n.setCut(false)
		time.Sleep(time.Minute) // it expires
	})
}

// mute never answers a release, and says of it what its context says.
type mute struct{ *memlock.Store }

func (mute) Release(ctx context.Context, _ driver.Grant) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (m mute) Traits() driver.Traits {
	traits := m.Store.Traits()
	traits.Local = false
	return traits
}

func TestUnlockWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(mute{store}, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		start := time.Now()
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("Unlock: %v; want that the store did not answer", err)
		}
		if took := time.Since(start); took > 2*dlock.DefaultRequestTimeout {
			t.Errorf("Unlock took %v; want the time of two requests at most", took)
		}
		time.Sleep(time.Minute) // it expires
	})
}

// slowRenewal takes a second to renew.
type slowRenewal struct {
	*memlock.Store
	renewing atomic.Bool
	overlap  atomic.Bool // a release came while a renewal was under way
}

func (s *slowRenewal) Renew(ctx context.Context, grants []driver.Grant) []error {
	s.renewing.Store(true)
	defer s.renewing.Store(false)
	time.Sleep(time.Second)
	return s.Store.Renew(ctx, grants)
}

func (s *slowRenewal) Release(ctx context.Context, grant driver.Grant) error {
	s.overlap.Store(s.renewing.Load())
	return s.Store.Release(ctx, grant)
}

func TestRenewalIsOverBeforeTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &slowRenewal{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if !store.renewing.Load() {
			t.Fatal("no renewal is under way")
		}
		mustUnlock(t, lease)
		if store.overlap.Load() {
			t.Error("the release was sent while a renewal was under way")
		}
	})
}

// swallowFirst loses the first release on its way, for as long as the caller waits.
type swallowFirst struct {
	*network
	done atomic.Bool
}

func (s *swallowFirst) Release(ctx context.Context, grant driver.Grant) error {
	if s.done.CompareAndSwap(false, true) {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.network.Release(ctx, grant)
}

// A release that is tried again and finds nothing is no success if the lease ran
// out in between: it expired, and another holder may have had the lock.
func TestSecondReleaseAfterTheLeaseRanOut(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&swallowFirst{network: newNetwork(store)}, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock: %v; want ErrNotHeld, since the lock expired before the second release", err)
		}
	})
}

// The first renewal is answered late, and no other one is answered: the lease ends
// a TTL after the first renewal was sent, not after its answer.
func TestTrustOfARenewalCountsFromItsSending(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const ttl = 9 * time.Second
		s := &lateRenewal{Store: store, late: 2 * time.Second}
		c := dlock.New(s, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithTTL(ttl))
		<-lease.Context().Done()
		if s.sent.IsZero() {
			t.Fatal("the lease ended without a renewal")
		}
		if lasted := time.Since(s.sent); lasted > ttl || lasted < ttl*9/10 {
			t.Errorf("the lease lasted %v after its renewal was sent; want a little less than %v", lasted, ttl)
		}
		_ = lease.Unlock(t.Context())
	})
}

// lateRenewal answers the first renewal late and no other one.
type lateRenewal struct {
	*memlock.Store
	late time.Duration
	sent time.Time // when the first one was
}

func (s *lateRenewal) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Local = false
	return traits
}

func (s *lateRenewal) Renew(ctx context.Context, grants []driver.Grant) []error {
	if !s.sent.IsZero() {
		<-ctx.Done()
		return []error{ctx.Err()}
	}
	s.sent = time.Now()
	errs := s.Store.Renew(ctx, grants)
	time.Sleep(s.late)
	return errs
}

// Unlock with a context that is cancelled gives the lock back all the same.
func TestUnlockWithACancelledContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(newNetwork(store), nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		for info := range store.List(t.Context(), "") {
			t.Errorf("%q is still held", info.Name)
		}
	})
}
