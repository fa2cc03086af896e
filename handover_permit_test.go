package dlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// permitInCrowd returns the only permit of a semaphore. occupant is the caller that waits at the
// store for it.
func permitInCrowd(t *testing.T, c *dlock.Client) (held *dlock.Lease, occupant <-chan lockResult) {
	t.Helper()
	limit := dlock.WithLimit(1)
	held = mustLock(t, c, t.Context(), "x", limit)
	return held, lockSoon(c, t.Context(), limit)
}

// The caller behind the one that asks the store gets the permit, with a larger token, and the
// store is not asked. Other processes have their chance after a while.
func TestPermitsAreHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{remote: remote{inner}}
		c := dlock.New(store, nil)
		defer c.Close()
		permit, occupant := permitInCrowd(t, c)
		acquires, releases := store.acquires.Load(), store.releases.Load()
		for range 12 {
			next := lockSoon(c, t.Context(), dlock.WithLimit(1))
			mustUnlock(t, permit)
			got := <-next
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.lease.Token() != permit.Token()+1 {
				t.Errorf("token %d after %d", got.lease.Token(), permit.Token())
			}
			if permit.Context().Err() == nil || got.lease.Context().Err() != nil {
				t.Error("the permit that was given back lives, or the one that was handed over does not")
			}
			permit = got.lease
		}
		if a, r := store.acquires.Load()-acquires, store.releases.Load()-releases; a != 0 || r != 0 {
			t.Errorf("%d acquired, %d released during 12 hand-overs; want none", a, r)
		}
		time.Sleep(time.Second) // longer than a process hands over
		last := lockSoon(c, t.Context(), dlock.WithLimit(1))
		mustUnlock(t, permit)
		var got lockResult
		select {
		case got = <-occupant:
		case <-last:
			t.Fatal("after a second the permit was handed over")
		}
		if got.err != nil {
			t.Fatal(got.err)
		}
		if store.releases.Load() == releases || got.lease.Token() <= permit.Token() {
			t.Errorf("token %d after %d, and %d releases", got.lease.Token(), permit.Token(), store.releases.Load()-releases)
		}
		mustUnlock(t, got.lease)
		if got = <-last; got.err != nil {
			t.Fatal(got.err)
		}
		mustUnlock(t, got.lease)
	})
}

// A chain of hand-overs ends: the caller that asks the store is not passed for ever.
func TestPermitHandOversEnd(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		c := dlock.New(&callCounter{remote: remote{inner}}, nil)
		defer c.Close()
		permit, occupant := permitInCrowd(t, c)
		for handOvers := 0; ; handOvers++ {
			next := lockSoon(c, t.Context(), dlock.WithLimit(1))
			time.Sleep(5 * time.Millisecond)
			mustUnlock(t, permit)
			select {
			case got := <-next:
				if got.err != nil {
					t.Fatal(got.err)
				}
				permit = got.lease
				if handOvers > 20 {
					t.Fatal("a permit was handed over for 100 ms while another caller waited at the store")
				}
			case got := <-occupant:
				if got.err != nil {
					t.Fatal(got.err)
				}
				mustUnlock(t, got.lease)
				if got = <-next; got.err != nil {
					t.Fatal(got.err)
				}
				mustUnlock(t, got.lease)
				return
			}
		}
	})
}

// A permit is not handed over to a caller that wants it on other terms.
func TestPermitHandOverNeedsEqualTerms(t *testing.T) {
	for name, opt := range map[string]dlock.Option{
		"TTL":    dlock.WithTTL(dlock.DefaultTTL / 2),
		"length": dlock.WithFixedTTL(dlock.DefaultTTL),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, inner *memlock.Store) {
				store := &callCounter{remote: remote{inner}}
				c := dlock.New(store, nil)
				defer c.Close()
				permit, occupant := permitInCrowd(t, c)
				next := lockSoon(c, t.Context(), dlock.WithLimit(1), opt)
				releases := store.releases.Load()
				mustUnlock(t, permit)
				if store.releases.Load() == releases {
					t.Fatal("the permit was not given back to the store")
				}
				for _, waiter := range []<-chan lockResult{occupant, next} {
					got := <-waiter
					if got.err != nil {
						t.Fatal(got.err)
					}
					mustUnlock(t, got.lease)
				}
			})
		})
	}
}

// A fair permit is not handed over: fair callers of other processes may have waited for longer.
func TestFairPermitIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{remote: remote{inner}}
		c := dlock.New(store, nil)
		defer c.Close()
		limit := dlock.WithLimit(1)
		permit := mustLock(t, c, t.Context(), "x", limit, dlock.WithFair())
		occupant, next := lockSoon(c, t.Context(), limit), lockSoon(c, t.Context(), limit)
		mustUnlock(t, permit)
		if store.releases.Load() == 0 {
			t.Error("the permit was not given back to the store")
		}
		for range 2 {
			var got lockResult
			select {
			case got = <-occupant:
			case got = <-next:
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			mustUnlock(t, got.lease)
		}
	})
}

// Processes that hand permits over leave the others their share, and none of their goroutines
// waits long.
func TestProcessesShareThePermits(t *testing.T) {
	for name, open := range map[string]func(store *memlock.Store, process int) driver.Store{
		"notified": func(store *memlock.Store, process int) driver.Store { return distantFor(store, process) },
		"polled":   func(store *memlock.Store, process int) driver.Store { return &polledStore{distantFor(store, process)} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				const lasts, processes, permits, hold = 3 * time.Second, 4, 8, time.Millisecond
				got := shares{make([]int, processes), make([]time.Duration, processes)}
				start := time.Now()
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range processes {
					c := dlock.New(open(store, i), nil)
					defer c.Close()
					for range 16 {
						all.Go(func() {
							for time.Since(start) < lasts {
								asked := time.Now()
								permit := mustLock(t, c, t.Context(), "x", dlock.WithLimit(permits))
								mu.Lock()
								got.served[i]++
								got.longest[i] = max(got.longest[i], time.Since(asked))
								mu.Unlock()
								time.Sleep(hold)
								mustUnlock(t, permit)
							}
						})
					}
				}
				all.Wait()
				total := 0
				for _, n := range got.served {
					total += n
				}
				for i, n := range got.served {
					if n < total/processes/2 || got.longest[i] > lasts/3 {
						t.Errorf("process %d had %d permits of %d, and a goroutine waited %v", i, n, total, got.longest[i])
					}
				}
				if least := int(lasts/hold) * permits * 7 / 10; total < least {
					t.Errorf("%d permits in %v; want at least %d", total, lasts, least)
				}
			})
		})
	}
}

// TestPermitTakenAgainPauses: a process that takes a permit again and again pauses at the end of its time
// slice, as one that takes a lock does. Otherwise waiters of other processes would never be in time.
func TestPermitTakenAgainPauses(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		const grants = 100
		begin := time.Now()
		for range grants {
			permit := mustLock(t, c, t.Context(), "x", dlock.WithLimit(1))
			time.Sleep(time.Millisecond)
			mustUnlock(t, permit)
		}
		if took := time.Since(begin); took == grants*time.Millisecond {
			t.Errorf("%d grants of a millisecond took %v: it made no pause", grants, took)
		}
	})
}
