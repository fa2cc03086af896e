package dlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

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

func TestTryLockDescribesTheHolder(t *testing.T) {
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

// TryLock behind a waiter of the same process describes the holder, not the waiter.
func TestTryLockBehindALocalWaiterDescribesTheHolder(t *testing.T) {
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

func TestBadInputIsRejected(t *testing.T) {
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
		if _, err := c.Lock(t.Context(), "x", dlock.WithNote(strings.Repeat("x", 1001))); !errors.Is(err, dlock.ErrBadNote) ||
			!strings.Contains(err.Error(), "the limit is 1000") {
			t.Errorf("a note of 1001 bytes: %v; want ErrBadNote", err)
		}
		lease := mustLock(t, c, t.Context(), "x", dlock.WithTTL(driver.MaxTTL), dlock.WithNote(strings.Repeat("x", 1000)))
		other := dlock.New(store, nil)
		defer other.Close()
		if _, err := other.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a lock with the longest TTL is not held: %v", err)
		}
		mustUnlock(t, lease)
	})
}

func TestDoUnlocksAfterFn(t *testing.T) {
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
			t.Errorf("Do whose context ended after the acquisition: %v", err)
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

// TestDoSucceedsIfOnlyTheUnlockFails: a caller that repeats Do when the store is unreachable
// must not run fn twice.
func TestDoSucceedsIfOnlyTheUnlockFails(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		var released error
		c := dlock.New(n, &dlock.Options{Hooks: dlock.Hooks{Released: func(e dlock.Event) { released = e.Err }}})
		defer c.Close()
		defer n.setCut(false)
		err := c.Do(t.Context(), "x", func(context.Context) error {
			n.setCut(true)
			return nil
		})
		if err != nil || !errors.Is(released, dlock.ErrUnreachable) {
			t.Errorf("Do whose unlock fails: %v, and the hook Released got %v; want nil and ErrUnreachable", err, released)
		}
		time.Sleep(time.Minute) // the lock expires
	})
}

// TestDoPassesOnTheContext: the context of fn has the deadline and the values of the caller, ends
// as the caller's does, and leads to the lease and to those around it.
func TestDoPassesOnTheContext(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, "value"), time.Minute, late)
		defer cancel()
		outer := mustLock(t, c, ctx, "outer")
		defer func() { mustUnlock(t, outer) }()
		inside := func(ctx context.Context) {
			if got := ctx.Value(key{}); got != "value" {
				t.Errorf("the value is %v", got)
			}
			for _, name := range []string{"outer", "x"} {
				if lease, err := c.Lock(ctx, name, dlock.WithWait(0)); err != nil {
					t.Errorf("re-entering %q: %v", name, err)
				} else {
					mustUnlock(t, lease)
				}
			}
		}
		err := c.Do(outer.Context(), "x", func(ctx context.Context) error {
			inside(ctx)
			return c.Do(ctx, "outer", func(ctx context.Context) error { // re-enters
				inside(ctx)
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		err = c.Do(ctx, "y", func(inner context.Context) error {
			want, _ := ctx.Deadline()
			if deadline, ok := inner.Deadline(); !ok || !deadline.Equal(want) {
				t.Errorf("the deadline is %v, %v; want %v", deadline, ok, want)
			}
			<-inner.Done()
			derived, cancel := context.WithCancel(inner)
			defer cancel()
			if !errors.Is(inner.Err(), context.DeadlineExceeded) || !errors.Is(derived.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(inner), late) {
				t.Errorf("it ended with %v, a derived one with %v, the cause is %v", inner.Err(), derived.Err(), context.Cause(inner))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
