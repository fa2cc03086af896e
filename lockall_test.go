package dlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// bareStore is a store without any extension.
type bareStore struct{ driver.Store }

// ways are all ways to acquire a set.
var ways = []struct {
	name string
	wrap func(*memlock.Store) driver.Store
	opts []dlock.Option
}{

	{"in one step", func(s *memlock.Store) driver.Store { return s }, nil},
	{"one after the other", func(s *memlock.Store) driver.Store { return bareStore{s} }, nil},
	{"fair", func(s *memlock.Store) driver.Store { return s }, []dlock.Option{dlock.WithFair()}},
}

func eachWay(t *testing.T, fn func(t *testing.T, c, other *dlock.Client, opts []dlock.Option)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c, other := dlock.New(way.wrap(store), nil), dlock.New(way.wrap(store), nil)
				defer c.Close()
				defer other.Close()
				fn(t, c, other, way.opts)
			})
		})
	}
}

// TestLockAllRefusesTooManyNames: a store that takes all names in one step serves no other call
// meanwhile. Names that are given twice count once.
func TestLockAllRefusesTooManyNames(t *testing.T) {
	var names []string
	for i := range 501 {
		names = append(names, strconv.Itoa(i))
	}
	for _, way := range ways {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			c := dlock.New(way.wrap(store), nil)
			defer c.Close()
			most, err := c.LockAll(t.Context(), slices.Concat(names[1:], names[1:]), way.opts...)
			if err != nil {
				t.Fatalf("%s: LockAll of 500 names: %v", way.name, err)
			}
			if err := most.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err = c.LockAll(t.Context(), names, way.opts...)
			if inOneStep := way.name == "in one step"; errors.Is(err, dlock.ErrBadName) != inOneStep {
				t.Errorf("%s: LockAll of 501 names: %v; want ErrBadName only in one step", way.name, err)
			}
		})
	}
}

func TestLockAllIsAllOrNone(t *testing.T) {
	eachWay(t, func(t *testing.T, c, other *dlock.Client, opts []dlock.Option) {
		taken := mustLock(t, other, t.Context(), "b")
		names := []string{"c", "b", "a", "b"}
		for _, wait := range []time.Duration{0, time.Second} {
			start := time.Now()
			_, err := c.LockAll(t.Context(), names, append(opts, dlock.WithWait(wait))...)
			if held, ok := errors.AsType[*dlock.HeldError](err); !ok || held.Name != "b" {
				t.Errorf("LockAll: %v; want that b is held", err)
			}
			if waited := time.Since(start); waited != wait {
				t.Errorf("waited %v; want %v", waited, wait)
			}
			for _, name := range []string{"a", "c"} {
				mustUnlock(t, mustLock(t, other, t.Context(), name, dlock.WithWait(0)))
			}
		}
		time.AfterFunc(3*time.Second, func() { mustUnlock(t, taken) })
		leases, err := c.LockAll(t.Context(), names, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := leases.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("Names = %q", got)
		}
		for _, name := range leases.Names() {
			if leases.Token(name) == 0 {
				t.Errorf("no token for %q", name)
			}
			if _, err := other.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("%q is not held: %v", name, err)
			}
		}
		if leases.Token("d") != 0 {
			t.Error("a name that is not in the set has a token")
		}
		for range 2 {
			if err := leases.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		}
		if cause := context.Cause(leases.Context()); !errors.Is(cause, dlock.ErrReleased) {
			t.Errorf("the cause after Unlock is %v", cause)
		}
	})
}

func TestLockAllDoesNotDeadlock(t *testing.T) {
	eachWay(t, func(t *testing.T, c, other *dlock.Client, opts []dlock.Option) {
		var mu sync.Mutex
		inside := map[string]int{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 12 {
			client := []*dlock.Client{c, other}[i%2]
			random := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for range 20 {
					names := []string{"a", "b", "c", "d"}
					random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
					names = names[:1+random.IntN(4)]
					leases, err := client.LockAll(ctx, names, opts...)
					if err != nil {
						t.Errorf("LockAll: %v", err)
						return
					}
					mu.Lock()
					for _, name := range names {
						if inside[name]++; inside[name] != 1 {
							t.Errorf("%d hold %q", inside[name], name)
						}
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					for _, name := range names {
						inside[name]--
					}
					mu.Unlock()
					if err := leases.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestLockAllReenters(t *testing.T) {
	eachWay(t, func(t *testing.T, c, other *dlock.Client, opts []dlock.Option) {
		outer := mustLock(t, c, t.Context(), "b")
		leases, err := c.LockAll(outer.Context(), []string{"a", "b", "c"}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.LockAll(leases.Context(), []string{"c", "a"}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if leases.Token("b") != outer.Token() || again.Token("a") != leases.Token("a") {
			t.Error("a re-entry has another token than the lock")
		}
		for _, unlock := range []func(context.Context) error{leases.Unlock, outer.Unlock} {
			if err := unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := other.TryLock(t.Context(), "a"); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("a is free although it was re-entered: %v", err)
		}
		if err := again.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, mustLock(t, other, t.Context(), "a", dlock.WithWait(0)))
	})
}

func TestLosingOneEndsTheContextOfAll(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		leases, err := c.LockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Break(t.Context(), "b", leases.Token("b")); err != nil {
			t.Fatal(err)
		}
		<-leases.Context().Done()
		if cause := context.Cause(leases.Context()); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("cause %v", cause)
		}
		if err := leases.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock: %v", err)
		}
		synctest.Wait()
	})
}

// The first name may be lost before the last is acquired.
func TestLockAllFailsIfItLostAName(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(bareStore{store}, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		taken := mustLock(t, other, t.Context(), "b")
		time.AfterFunc(10*time.Second, func() { mustUnlock(t, taken) })
		_, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithFixedTTL(5*time.Second))
		if !errors.Is(err, dlock.ErrLost) {
			t.Errorf("LockAll: %v; want that a was lost meanwhile", err)
		}
		synctest.Wait()
	})
}

// While LockAll waits for one name, other callers can lock the others.
func TestLockAllKeepsNothingWhileItWaits(t *testing.T) {
	for which, here := range map[string]bool{"held by the same process": true, "held by another": false} {
		t.Run(which, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c, other := dlock.New(store, nil), dlock.New(store, nil)
				defer c.Close()
				defer other.Close()
				holder := other
				if here {
					holder = c
				}
				b := mustLock(t, holder, t.Context(), "b")
				var wg sync.WaitGroup
				wg.Go(func() {
					leases, err := c.LockAll(t.Context(), []string{"a", "b", "c"})
					if err != nil {
						t.Error(err)
						return
					}
					if err := leases.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				for _, name := range []string{"a", "c"} {
					mustUnlock(t, mustLock(t, c, t.Context(), name, dlock.WithWait(0)))
				}
				mustUnlock(t, b)
				wg.Wait()
			})
		})
	}
}

// A set whose grants arrive too late is not returned, and leaves nothing behind.
func TestLateGrantsOfLockAllAreRejected(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(lateBatch{newNetwork(store)}, nil)
		defer c.Close()
		_, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithTTL(20*time.Second))
		if !errors.Is(err, dlock.ErrUnreachable) {
			t.Errorf("LockAll: %v", err)
		}
		time.Sleep(time.Minute)
		for info := range store.List(t.Context(), "") {
			t.Errorf("%q is still held, and renewed", info.Name)
		}
	})
}

// lateBatch grants the second name for a shorter time than the answer takes.
type lateBatch struct{ *network }

func (s lateBatch) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	grants, err := s.network.AcquireAll(ctx, reqs)
	if err == nil {
		grants[1].TTL = time.Second
		time.Sleep(2 * time.Second)
	}
	return grants, err
}

// A store may refuse a different name each time.
func TestLockAllDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &fickle{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		_, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithWait(time.Minute))
		if !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("LockAll: %v", err)
		}
		if store.attempts > 200 {
			t.Errorf("%d attempts in a minute", store.attempts)
		}
	})
}

// fickle refuses a different name each time.
type fickle struct {
	*memlock.Store
	attempts int
}

func (s *fickle) AcquireAll(_ context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	s.attempts++
	if s.attempts > 1_000_000 {
		panic("it spins")
	}
	return nil, &driver.HeldError{Name: reqs[s.attempts%len(reqs)].Name, Remaining: time.Hour}
}

// The context of a set leaves nothing behind in a lease around it.
func TestLockAllContextIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		outer := mustLock(t, c, t.Context(), "outer")
		var before, after runtime.MemStats
		const sets = 5000
		for i := range 2 * sets {
			if i == sets {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			leases, err := c.LockAll(outer.Context(), []string{"outer", "a"})
			if err != nil {
				t.Fatal(err)
			}
			if leases.Context().Err() != nil {
				t.Fatal(context.Cause(leases.Context()))
			}
			if err := leases.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / sets; each > 100 {
			t.Errorf("every set leaves %d bytes behind", each)
		}
		mustUnlock(t, outer)
	})
}
