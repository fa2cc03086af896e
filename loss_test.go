package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestUnreachableStoreIsReportedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		start := time.Now()
		_, err := c.Lock(t.Context(), "x")
		if !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("Lock: %v", err)
		}
		if waited := time.Since(start); waited > dlock.DefaultRequestTimeout {
			t.Errorf("it took %v", waited)
		}
		n.setCut(false)
	})
}

// Who already waits rides out an outage that is shorter than the TTL, and is
// told of a longer one.
func TestWaitingThroughAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{20 * time.Second, 2 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				n := newNetwork(store)
				c, other := dlock.New(n, nil), dlock.New(store, nil)
				defer c.Close()
				defer other.Close()
				lease := mustLock(t, other, t.Context(), "x")
				result := make(chan error, 1)
				go func() {
					lease, err := c.Lock(t.Context(), "x")
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					result <- err
				}()
				time.Sleep(40 * time.Second)
				n.setCut(true)
				time.Sleep(outage / 2)
				mustUnlock(t, lease)
				time.Sleep(outage / 2)
				n.setCut(false)
				err := <-result
				if outage < dlock.DefaultTTL && err != nil {
					t.Errorf("an outage of %v: %v", outage, err)
				}
				if outage > dlock.DefaultTTL && !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("an outage of %v: %v; want ErrUnreachable", outage, err)
				}
				synctest.Wait()
			})
		})
	}
}

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

// Those who queue behind each other are told of a dead store together.
func TestQueueBehindADeadStore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c, other := dlock.New(n, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, other, t.Context(), "x")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("Lock: %v", err)
				}
			})
		}
		time.Sleep(time.Second)
		n.setCut(true)
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 3*dlock.DefaultTTL {
			t.Errorf("the last one was told after %v", took)
		}
		n.setCut(false)
		mustUnlock(t, lease)
	})
}

// Nobody is said to have the lock who was not seen to have it.
func TestWaitLimitOnADeadStore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		for _, limit := range []time.Duration{time.Second, time.Minute} {
			_, err := c.Lock(t.Context(), "x", dlock.WithWait(limit))
			_, all := c.LockAll(t.Context(), []string{"x", "y"}, dlock.WithWait(limit))
			for _, err := range []error{err, all} {
				if errors.Is(err, dlock.ErrHeld) || !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("with a limit of %v: %v; want ErrUnreachable", limit, err)
				}
			}
		}
		n.setCut(false)
		time.Sleep(time.Minute)
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

// unfair is a store that cannot do fair locks.
type unfair struct{ *memlock.Store }

func (s unfair) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.Fair = false
	return traits
}

func TestFairWhereTheStoreIsNot(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(unfair{store}, nil)
		defer c.Close()
		if _, err := c.Lock(t.Context(), "x", dlock.WithFair()); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Lock: %v; want ErrUnsupported", err)
		}
		bare := dlock.New(one{store}, nil)
		defer bare.Close()
		if err := bare.Break(t.Context(), "x", 1); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Break: %v; want ErrUnsupported", err)
		}
		if _, err := bare.Diagnose(t.Context()); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Diagnose: %v; want ErrUnsupported", err)
		}
		for _, err := range bare.Locks(t.Context(), "") {
			if !errors.Is(err, dlock.ErrUnsupported) {
				t.Errorf("Locks: %v; want ErrUnsupported", err)
			}
		}
	})
}

// Whoever comes while an attempt is being undone that was cancelled before the
// store answered is told so, and not that it was cancelled itself.
func TestTryLockBehindACancelledAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		c := dlock.New(n, nil)
		defer c.Close()
		n.setCut(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := c.TryLock(t.Context(), "x"); errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("TryLock: %v", err)
		}
		n.setCut(false)
		time.Sleep(time.Minute)
	})
}
