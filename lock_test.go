package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// bubble runs fn in virtual time with a store in memory, and sees to it that
// nothing is left: synctest fails if a goroutine is, and List if a lock is.
func bubble(t *testing.T, fn func(t *testing.T, store *memlock.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		fn(t, store)
		for info := range store.List(context.Background(), "") {
			t.Errorf("left behind: %+v", info)
		}
	})
}

func mustLock(t *testing.T, c *dlock.Client, ctx context.Context, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

func mustUnlock(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

func TestLockExcludesAndTokensRise(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		a, b := dlock.New(store, nil), dlock.New(store, nil)
		defer a.Close()
		defer b.Close()
		inside, last := 0, uint64(0)
		var wg sync.WaitGroup
		for i := range 20 {
			c := []*dlock.Client{a, b}[i%2]
			wg.Go(func() {
				for range 20 {
					lease := mustLock(t, c, t.Context(), "x")
					if inside++; inside != 1 {
						t.Errorf("%d hold the lock", inside)
					}
					if lease.Token() <= last {
						t.Errorf("token %d after %d", lease.Token(), last)
					}
					last = lease.Token()
					time.Sleep(time.Millisecond)
					inside--
					mustUnlock(t, lease)
				}
			})
		}
		wg.Wait()
	})
}

func TestTryLockNamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		a := dlock.New(store, &dlock.Options{Holder: driver.Holder{Host: "h1", Program: "payments"}})
		defer a.Close()
		b := dlock.New(store, nil)
		defer b.Close()
		lease := mustLock(t, a, t.Context(), "x", dlock.WithNote("nightly run"))
		for which, c := range map[string]*dlock.Client{"another process": b, "the same process": a} {
			start := time.Now()
			_, err := c.TryLock(t.Context(), "x")
			held, ok := errors.AsType[*dlock.HeldError](err)
			if !ok || !errors.Is(err, dlock.ErrHeld) {
				t.Fatalf("TryLock from %s: %v", which, err)
			}
			if held.Holder.Host != "h1" || held.Holder.Program != "payments" || held.Holder.Note != "nightly run" {
				t.Errorf("from %s the holder is %+v", which, held.Holder)
			}
			if held.Token != lease.Token() || held.Remaining < 29*time.Second || held.Remaining > 30*time.Second {
				t.Errorf("from %s: token %d, remaining %v", which, held.Token, held.Remaining)
			}
			if waited := time.Since(start); waited != 0 {
				t.Errorf("TryLock from %s took %v", which, waited)
			}
		}
		mustUnlock(t, lease)
	})
}

// A try behind somebody of the same process who waits is told who really has it.
func TestTryLockBehindALocalWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		a, b := dlock.New(store, &dlock.Options{Holder: driver.Holder{Host: "far"}}), dlock.New(store, nil)
		defer a.Close()
		defer b.Close()
		lease := mustLock(t, a, t.Context(), "x")
		var wg sync.WaitGroup
		wg.Go(func() { mustUnlock(t, mustLock(t, b, t.Context(), "x")) })
		synctest.Wait()
		_, err := b.TryLock(t.Context(), "x")
		if held, ok := errors.AsType[*dlock.HeldError](err); !ok || held.Holder.Host != "far" {
			t.Errorf("TryLock: %v; want the far holder", err)
		}
		mustUnlock(t, lease)
		wg.Wait()
	})
}

func TestWaitLimit(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		a, b := dlock.New(store, nil), dlock.New(store, nil)
		defer a.Close()
		defer b.Close()
		lease := mustLock(t, a, t.Context(), "x")
		for which, c := range map[string]*dlock.Client{"another process": b, "the same process": a} {
			start := time.Now()
			_, err := c.Lock(t.Context(), "x", dlock.WithWait(2*time.Second))
			if _, ok := errors.AsType[*dlock.HeldError](err); !ok || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("from %s: %v; want a HeldError", which, err)
			}
			if waited := time.Since(start); waited != 2*time.Second {
				t.Errorf("from %s waited %v", which, waited)
			}
		}
		mustUnlock(t, lease)
	})
}

func TestCancelledWaitWrapsTheCause(t *testing.T) {
	cause := errors.New("the customer went away")
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%v", fair), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				a, b := dlock.New(store, nil), dlock.New(store, nil)
				defer a.Close()
				defer b.Close()
				var opts []dlock.Option
				if fair {
					opts = append(opts, dlock.WithFair())
				}
				lease := mustLock(t, a, t.Context(), "x", opts...)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				start := time.Now()
				_, err := b.Lock(ctx, "x", opts...)
				if !errors.Is(err, cause) || !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("Lock: %v; want it to wrap the cause and to say that it is held", err)
				}
				if waited := time.Since(start); waited != time.Second {
					t.Errorf("waited %v", waited)
				}
				synctest.Wait()
				for info := range store.List(t.Context(), "") {
					if info.Waiters != 0 {
						t.Errorf("%d waiters are left in the store", info.Waiters)
					}
				}
				mustUnlock(t, lease)
			})
		})
	}
}

func TestLockDoesNotOutliveTheContextGiven(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		lease := mustLock(t, c, ctx, "x")
		cancel()
		time.Sleep(5 * time.Minute) // the watchdog goes on
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease ended with the context of Lock: %v", err)
		}
		if lease.Context().Value(key{}) != "v" {
			t.Error("the lease's context lost the values of the caller's")
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock with a cancelled context: %v", err)
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("second Unlock: %v", err)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrReleased) {
			t.Errorf("after Unlock the cause is %v", cause)
		}
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock with a cancelled context: %v", err)
		}
	})
}

type key struct{}

func TestRemaining(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(30*time.Second), dlock.WithMargin(5*time.Second))
		if left := lease.Remaining(); left != 25*time.Second {
			t.Errorf("at first %v", left)
		}
		time.Sleep(20 * time.Second)
		if left := lease.Remaining(); left != 5*time.Second {
			t.Errorf("after 20 s %v", left)
		}
		mustUnlock(t, lease)
		if left := lease.Remaining(); left != 0 {
			t.Errorf("after Unlock %v", left)
		}
		lease = mustLock(t, c, t.Context(), "x")
		time.Sleep(time.Hour)
		if left := lease.Remaining(); left < 19*time.Second {
			t.Errorf("with renewals %v", left)
		}
		mustUnlock(t, lease)
	})
}

func TestFixedTTLTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		lost := make(chan dlock.Event, 1)
		c := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{Lost: func(e dlock.Event) { lost <- e }}})
		defer c.Close()
		start := time.Now()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(10*time.Second))
		// Somebody of the same process gets it although nobody unlocks.
		second := mustLock(t, c, t.Context(), "x")
		if waited := time.Since(start); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("the lock timed out after %v", waited)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("the context's cause is %v", cause)
		}
		if e := <-lost; !errors.Is(e.Err, dlock.ErrLost) || e.Name != "x" || e.Token != lease.Token() {
			t.Errorf("hook was told %+v", e)
		}
		for range 2 {
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
				t.Errorf("Unlock after the timeout: %v", err)
			}
		}
		if err := second.Context().Err(); err != nil {
			t.Errorf("a late Unlock ended somebody else's lease: %v", err)
		}
		mustUnlock(t, second)
	})
}

func TestBadInput(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		for _, name := range []string{"", strings.Repeat("x", 256), "a\nb", "\x00", "a\x7f", "caf\xe9", "a\u0085b"} {
			if _, err := c.Lock(t.Context(), name); !errors.Is(err, dlock.ErrBadName) {
				t.Errorf("Lock(%q): %v; want ErrBadName", name, err)
			}
			if _, err := c.LockAll(t.Context(), []string{"fine", name}); !errors.Is(err, dlock.ErrBadName) {
				t.Errorf("LockAll(%q): %v; want ErrBadName", name, err)
			}
			if err := c.Break(t.Context(), name, 1); !errors.Is(err, dlock.ErrBadName) {
				t.Errorf("Break(%q): %v; want ErrBadName", name, err)
			}
		}
		if _, err := c.LockAll(t.Context(), nil); !errors.Is(err, dlock.ErrBadName) {
			t.Errorf("LockAll of nothing: %v", err)
		}
		for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, driver.MaxTTL + 1, 1<<63 - 1} {
			for _, opt := range []dlock.Option{dlock.WithTTL(ttl), dlock.WithFixedTTL(ttl)} {
				if _, err := c.Lock(t.Context(), "x", opt); !errors.Is(err, dlock.ErrBadTTL) {
					t.Errorf("TTL %v: %v; want ErrBadTTL", ttl, err)
				}
			}
		}
		lease := mustLock(t, c, t.Context(), "x", dlock.WithTTL(driver.MaxTTL))
		other := dlock.New(store, nil)
		defer other.Close()
		if _, err := other.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a lock with the longest TTL is not held: %v", err)
		}
		mustUnlock(t, lease)
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		failed := errors.New("failed")
		err := c.Do(t.Context(), "x", func(ctx context.Context) error {
			if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("inside Do the lock is not held: %v", err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("Do = %v; want the error of fn", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = c.Do(ctx, "x", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Errorf("Do whose context ended after the lock was had: %v", err)
		}
		err = c.Do(t.Context(), "x", func(ctx context.Context) error {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, dlock.ErrLost) {
				t.Errorf("cause %v", cause)
			}
			return nil
		}, dlock.WithFixedTTL(time.Second))
		if !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Do that lost the lock: %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = c.Do(t.Context(), "x", func(context.Context) error { panic("oh") })
		}()
		mustUnlock(t, mustLock(t, c, t.Context(), "x", dlock.WithWait(0)))
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
		if _, _, err := bare.Find(t.Context(), "x"); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("Find: %v; want ErrUnsupported", err)
		}
		for _, err := range bare.Locks(t.Context(), "") {
			if !errors.Is(err, dlock.ErrUnsupported) {
				t.Errorf("Locks: %v; want ErrUnsupported", err)
			}
		}
	})
}
