package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

func TestCloseReleasesAllLocks(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer other.Close()
		foreign := mustLock(t, other, t.Context(), "foreign")
		var leases []*dlock.Lease
		for i := range 100 {
			leases = append(leases, mustLock(t, c, t.Context(), fmt.Sprint(i)))
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, name := range []string{"0", "0", "foreign", "foreign"} {
			for _, opts := range [][]dlock.Option{nil, {dlock.WithFair()}} {
				wg.Go(func() {
					if _, err := c.Lock(ctx, name, opts...); !errors.Is(err, dlock.ErrClosed) {
						t.Errorf("a wait for %q ended with %v", name, err)
					}
				})
			}
		}
		synctest.Wait()
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		wg.Wait()
		for _, lease := range leases {
			if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrClosed) {
				t.Fatalf("the cause after Close is %v", cause)
			}
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) || !errors.Is(err, dlock.ErrClosed) {
				t.Fatalf("Unlock after Close: %v; want ErrNotHeld and ErrClosed", err)
			}
		}
		if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, dlock.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
		if err := c.Break(t.Context(), "foreign", foreign.Token()); !errors.Is(err, dlock.ErrClosed) {
			t.Errorf("Break after Close: %v", err)
		}
		for _, err := range c.Locks(t.Context(), "") {
			if !errors.Is(err, dlock.ErrClosed) {
				t.Errorf("Locks after Close: %v", err)
			}
		}
		for info := range store.List(t.Context(), "") {
			if info.Name != "foreign" || info.Waiters != 0 {
				t.Errorf("left: %+v", info)
			}
		}
		mustUnlock(t, foreign)
	})
}

func TestCloseIsBoundedInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		n := newNetwork(store)
		var released atomic.Int64
		c := dlock.New(n, &dlock.Options{Hooks: dlock.Hooks{Released: func(e dlock.Event) {
			if released.Add(1); !errors.Is(e.Err, dlock.ErrUnreachable) {
				t.Errorf("the hook Released of %q: %v; want ErrUnreachable", e.Name, e.Err)
			}
		}}})
		for i := range 500 {
			mustLock(t, c, t.Context(), fmt.Sprint(i))
		}
		var wg sync.WaitGroup
		for i := range 500 { // a waiter behind each
			wg.Go(func() {
				if _, err := c.Lock(t.Context(), fmt.Sprint(i)); !errors.Is(err, dlock.ErrClosed) {
					t.Errorf("a wait ended with %v", err)
				}
			})
		}
		synctest.Wait()
		n.setCut(true)
		defer wg.Wait()
		start := time.Now()
		for range 2 {
			if err := c.Close(); !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("Close: %v", err)
			}
		}
		if took := time.Since(start); took > 5*dlock.DefaultRequestTimeout {
			t.Errorf("Close took %v", took)
		}
		if n := released.Load(); n != 500 {
			t.Errorf("the hook Released was called for %d of 500 locks", n)
		}
		time.Sleep(time.Minute) // the locks expire
		for info := range store.List(t.Context(), "") {
			t.Errorf("%q is held a minute after Close", info.Name)
		}
	})
}

// Close during calls of all kinds leaves nothing behind.
func TestCloseDuringOtherCalls(t *testing.T) {
	for round := range 50 {
		store := memlock.New()
		c := dlock.New(store, nil)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for {
					opts, name := []dlock.Option{dlock.WithWait(time.Millisecond)}, fmt.Sprint(i%3)
					if i%2 == 0 {
						opts = append(opts, dlock.WithFair())
					}
					switch {
					case i >= 12:
						opts, name = append(opts, dlock.WithLimit(2)), "permits"
					case i >= 8:
						opts = append(opts, dlock.WithShared())
					}
					lease, err := c.Lock(t.Context(), name, opts...)
					switch {
					case errors.Is(err, dlock.ErrClosed):
						return
					case err == nil && i%4 != 0: // some do not unlock
						_ = lease.Unlock(t.Context())
					}
				}
			})
		}
		time.AfterFunc(time.Duration(round)*100*time.Microsecond, func() { _ = c.Close() })
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for info := range store.List(t.Context(), "") {
			t.Fatalf("left: %+v", info)
		}
	}
}

// A caller that lists locks does not keep the client open.
func TestListingDoesNotDelayClose(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		mustLock(t, c, t.Context(), "x")
		mustLock(t, c, t.Context(), "y")
		var seen []error
		for _, err := range c.Locks(t.Context(), "") {
			seen = append(seen, err)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if len(seen) != 2 || seen[0] != nil || !errors.Is(seen[1], dlock.ErrClosed) {
			t.Errorf("Locks, when the client is closed after the first: %v", seen)
		}
	})
}

func TestLargestRequestTimeoutDoesNotOverflow(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&distantStore{remote: remote{store}}, &dlock.Options{RequestTimeout: math.MaxInt64})
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
		mustLock(t, c, t.Context(), "x")
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		other := dlock.New(store, nil)
		defer other.Close()
		mustUnlock(t, mustLock(t, other, t.Context(), "x", dlock.WithWait(0)))
	})
}

// Do and Unlock report that Close released the lock while it was in use.
func TestCloseDuringDoIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		err := c.Do(t.Context(), "x", func(ctx context.Context) error {
			go func() { _ = c.Close() }()
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, dlock.ErrNotHeld) || !errors.Is(err, dlock.ErrClosed) {
			t.Errorf("Do: %v; want ErrNotHeld and ErrClosed", err)
		}
		_ = c.Close()
	})
}
