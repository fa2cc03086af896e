package dlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// callCounter is a remote store that counts what it granted and released.
type callCounter struct {
	remote
	acquires, releases atomic.Int64
}

func (s *callCounter) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.acquires.Add(1)
	}
	return grant, err
}

func (s *callCounter) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	return s.Store.Release(ctx, grant)
}

// lockResult is the result of a Lock.
type lockResult struct {
	lease *dlock.Lease
	err   error
}

// lockSoon locks x in another goroutine, which waits when lockSoon returns.
func lockSoon(c *dlock.Client, ctx context.Context, opts ...dlock.Option) <-chan lockResult {
	done := make(chan lockResult, 1)
	go func() {
		lease, err := c.Lock(ctx, "x", opts...)
		done <- lockResult{lease, err}
	}()
	synctest.Wait()
	return done
}

// notHandedOver makes a lease that its process does not hand over, but releases.
var notHandedOver = dlock.WithFixedTTL(dlock.DefaultTTL)

// lockInCrowd locks x while other callers of this process want it, so that the grant may
// be handed over.
func lockInCrowd(t *testing.T, c *dlock.Client, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	first := mustLock(t, c, t.Context(), "x")
	next := lockSoon(c, t.Context(), opts...)
	mustUnlock(t, first)
	got := <-next
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.lease
}

// The next waiter of the process gets the lock with a larger token, and the store is not
// asked.
func TestHandOverAsksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{remote: remote{inner}}
		c := dlock.New(store, nil)
		defer c.Close()
		lease := lockInCrowd(t, c)
		acquires, releases := store.acquires.Load(), store.releases.Load()
		for range 12 { // fewer than the tokens of a grant
			next := lockSoon(c, t.Context())
			mustUnlock(t, lease)
			got := <-next
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.lease.Token() <= lease.Token() {
				t.Errorf("token %d after %d", got.lease.Token(), lease.Token())
			}
			if lease.Context().Err() == nil || got.lease.Context().Err() != nil {
				t.Error("the lease that was unlocked lives, or the one that was handed over does not")
			}
			lease = got.lease
		}
		if a, r := store.acquires.Load()-acquires, store.releases.Load()-releases; a != 0 || r != 0 {
			t.Errorf("%d acquired, %d released during 12 hand-overs; want none", a, r)
		}
		time.Sleep(10 * dlock.DefaultTTL) // it is renewed
		if lease.Context().Err() != nil {
			t.Errorf("the lock that was handed over is lost: %v", context.Cause(lease.Context()))
		}
		mustUnlock(t, lease)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for info := range inner.List(t.Context(), "") {
			t.Errorf("%q is left behind", info.Name)
		}
		other := dlock.New(inner, nil)
		defer other.Close()
		if after := mustLock(t, other, t.Context(), "x"); after.Token() <= lease.Token() {
			t.Errorf("another process got token %d after %d was handed over", after.Token(), lease.Token())
		}
	})
}

// A lock is handed over only to a caller that asked for the same terms, and never from
// or to a lease of fixed length, which lasts for a TTL from its own beginning.
func TestHandOverNeedsEqualTerms(t *testing.T) {
	for _, test := range []struct {
		name        string
		first, next dlock.Option
		handsOver   bool
	}{
		{"equal", dlock.WithTTL(time.Minute), dlock.WithTTL(time.Minute), true},
		{"another TTL", dlock.WithTTL(time.Minute), dlock.WithTTL(time.Hour), false},
		{"another margin", dlock.WithMargin(time.Second), dlock.WithMargin(2 * time.Second), false},
		{"to a fixed TTL", dlock.WithTTL(time.Minute), dlock.WithFixedTTL(time.Minute), false},
		{"from a fixed TTL", dlock.WithFixedTTL(time.Minute), dlock.WithTTL(time.Minute), false},
		{"between fixed TTLs", dlock.WithFixedTTL(time.Minute), dlock.WithFixedTTL(time.Minute), false},
		{"fair", dlock.WithFair(), dlock.WithFair(), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				store := &callCounter{remote: remote{inner}}
				c := dlock.New(store, nil)
				defer c.Close()
				lease := lockInCrowd(t, c, test.first)
				acquires := store.acquires.Load()
				next := lockSoon(c, t.Context(), test.next)
				mustUnlock(t, lease)
				got := <-next
				if got.err != nil {
					t.Fatal(got.err)
				}
				if handedOver := store.acquires.Load() == acquires; handedOver != test.handsOver {
					t.Errorf("handed over: %v; want %v", handedOver, test.handsOver)
				}
				mustUnlock(t, got.lease)
			})
		})
	}
}

// A waiter that has given up is passed over.
func TestHandOverSkipsAWaiterThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := lockInCrowd(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := lockSoon(c, ctx), lockSoon(c, t.Context())
		cancel()
		mustUnlock(t, lease) // at the same moment
		if got := <-leaves; got.err == nil {
			mustUnlock(t, got.lease)
		} else if !errors.Is(got.err, context.Canceled) {
			t.Errorf("a Lock that was cancelled: %v", got.err)
		}
		start := time.Now()
		got := <-stays
		if got.err != nil {
			t.Fatal(got.err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the waiter behind had the lock after %v", took)
		}
		mustUnlock(t, got.lease)
	})
}

// A lease of which less than half of the TTL is left is not handed over, although the time
// slice has not ended: the next waiter asks the store.
func TestLeaseThatIsNotRenewedIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &unrenewed{callCounter{remote: remote{inner}}}
		c := dlock.New(store, nil)
		defer c.Close()
		const ttl = 15 * time.Millisecond // a slice lasts for 10 ms
		lease := lockInCrowd(t, c, dlock.WithTTL(ttl))
		next := lockSoon(c, t.Context(), dlock.WithTTL(ttl))
		acquires := store.acquires.Load()
		time.Sleep(ttl * 6 / 10)
		mustUnlock(t, lease)
		got := <-next
		if got.err != nil {
			t.Fatal(got.err)
		}
		if store.acquires.Load() == acquires {
			t.Error("a lease whose renewals fail was handed over after most of its TTL")
		}
		mustUnlock(t, got.lease)
	})
}

// unrenewed is a store whose renewals are not answered.
type unrenewed struct{ callCounter }

func (s *unrenewed) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = driver.ErrUnreachable
	}
	return errs
}

// The loss of a lock ends the lease that has it at that time, however often it was
// handed over.
func TestHandedOverLockIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &reporting{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		lease := lockInCrowd(t, c)
		for range 3 {
			next := lockSoon(c, t.Context())
			mustUnlock(t, lease)
			lease = (<-next).lease
		}
		behind := lockSoon(c, t.Context())
		for info := range inner.List(t.Context(), "") {
			if info.Token == lease.Token() {
				t.Fatalf("token %d was not handed over", info.Token)
			}
			if err := inner.Break(t.Context(), info.Name, info.Token); err != nil {
				t.Error(err)
			}
		}
		store.lost[len(store.lost)-1]()
		synctest.Wait()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("the lease that had the lock: %v; want ErrLost", cause)
		}
		got := <-behind
		if got.err != nil {
			t.Fatal(got.err)
		}
		if got.lease.Token() <= lease.Token() {
			t.Errorf("token %d after %d", got.lease.Token(), lease.Token())
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock of what was lost: %v", err)
		}
		mustUnlock(t, got.lease)
	})
}

// A client that is closed while callers hand a lock over holds no lock afterwards.
func TestHandOverWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		lease := lockInCrowd(t, c)
		next := lockSoon(c, t.Context())
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		_ = lease.Unlock(t.Context()) // Close may have given it back
		if got := <-next; got.err == nil {
			<-got.lease.Context().Done()
		} else if !errors.Is(got.err, dlock.ErrClosed) {
			t.Errorf("Lock: %v; want that the client is closed", got.err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		for info := range store.List(t.Context(), "") {
			t.Errorf("%q is left behind", info.Name)
		}
	})
}

// A waiter for several names takes all of them in one step.
func TestNoHandOverToLockAll(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{remote: remote{inner}}
		c := dlock.New(store, nil)
		defer c.Close()
		first := lockInCrowd(t, c)
		releases := store.releases.Load()
		done := make(chan error, 1)
		go func() {
			leases, err := c.LockAll(t.Context(), []string{"x", "y"})
			if err == nil {
				err = leases.Unlock(t.Context())
			}
			done <- err
		}()
		synctest.Wait()
		mustUnlock(t, first)
		if store.releases.Load() == releases {
			t.Error("the lock was handed over")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Other processes get the lock although a goroutine of this process always waits.
func TestHandOverEndsWithTheTimeSlice(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{remote: remote{inner}}
		c, other := dlock.New(store, nil), dlock.New(inner, nil)
		defer c.Close()
		defer other.Close()
		got := contend(t, "x", c, 4, other, 1)
		if got[1] == 0 || got[0] > 20*got[1] {
			t.Errorf("4 goroutines had the lock %d times, a goroutine of another process %d times", got[0], got[1])
		}
		if n := store.acquires.Load(); n > got[0]/2 {
			t.Errorf("%d grants for %d locks; want that most were handed over", n, got[0])
		}
	})
}

// A TryLock beside callers that hand the lock over names a holder at once.
func TestTryLockDuringHandOvers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := lockInCrowd(t, c)
		for range 20 {
			next := lockSoon(c, t.Context())
			tried := make(chan error, 1)
			start := time.Now()
			go func() { _, err := c.TryLock(t.Context(), "x"); tried <- err }()
			mustUnlock(t, lease)
			if err := <-tried; !errors.Is(err, dlock.ErrHeld) || time.Since(start) > time.Millisecond {
				t.Errorf("TryLock: %v after %v; want ErrHeld at once", err, time.Since(start))
			}
			lease = (<-next).lease
		}
		mustUnlock(t, lease)
	})
}
