//go:build !race

package dlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

const defaultSeeds = 10_000

// The tests below simulate minutes of busy processes. They are not compiled with the race
// detector, which makes them ten times slower: make test runs them without it.

// If the store always serves the same processes first, the others have their share all the
// same.
func TestProcessesTakeTurns(t *testing.T) {
	for _, processes := range []int{4, 24} {
		t.Run(strconv.Itoa(processes), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				const lasts = time.Minute
				got := compete(t, slices.Repeat([]time.Duration{lasts}, processes), func(process int) driver.Store { return distantFor(store, process) })
				total := 0
				for _, n := range got.served {
					total += n
				}
				for i, n := range got.served {
					if n < total/processes/2 {
						t.Errorf("process %d had the lock %d times of %d", i, n, total)
					}
					if got.longest[i] > lasts/2 { // it takes a while until all contenders are known
						t.Errorf("a goroutine of process %d waited %v", i, got.longest[i])
					}
				}
				if least := int(lasts/time.Millisecond) * 7 / 10; total < least {
					t.Errorf("the lock was acquired %d times in %v; want at least %d", total, lasts, least)
				}
			})
		})
	}
}

// On a store without notifications, a process pauses for as long as waiters that poll need.
func TestPollingProcessesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = time.Minute
		got := compete(t, []time.Duration{lasts, lasts, lasts}, func(process int) driver.Store { return &polledStore{distantFor(store, process)} })
		total := 0
		for _, n := range got.served {
			total += n
		}
		for i, n := range got.served {
			if n < total/6 {
				t.Errorf("process %d had the lock %d times of %d", i, n, total)
			}
			if got.longest[i] > lasts/6 {
				t.Errorf("a goroutine of process %d waited %v", i, got.longest[i])
			}
		}
		if least := int(lasts/time.Millisecond) * 7 / 10; total < least {
			t.Errorf("the lock was acquired %d times in %v; want at least %d", total, lasts, least)
		}
	})
}

// No waiter of a store that it has to poll starves: it waits no longer than a few times its
// fair share, in which every process has the lock for one time slice, or once for each of
// its goroutines.
func TestPollingWaitersDoNotStarve(t *testing.T) {
	const processes, slice, times = 10, 20 * time.Millisecond, 4
	for name, open := range map[string]func(store *memlock.Store, process int) driver.Store{
		"attempts": func(store *memlock.Store, process int) driver.Store {
			return unnotified{distantFor(store, process)}
		},
		"Watch": func(store *memlock.Store, process int) driver.Store {
			return &polledStore{distantFor(store, process)}
		},
	} {
		for _, hold := range []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%s/%v", name, hold), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memlock.Store) {
					share := processes * max(slice, goroutines*hold)
					lasts := 50 * share
					got := competeHolding(t, hold, slices.Repeat([]time.Duration{lasts}, processes), func(process int) driver.Store {
						return open(store, process)
					})
					total := 0
					for i, n := range got.served {
						total += n
						if got.longest[i] > times*share {
							t.Errorf("a goroutine of process %d waited %v; want at most %d times its share of %v", i, got.longest[i], times, share)
						}
					}
					if held := time.Duration(total) * hold; held < lasts*8/10 {
						t.Errorf("the lock was held for %v of %v", held, lasts)
					}
				})
			})
		}
	}
}

// TestPairAllocatesOnce: a lock that no other caller wants costs one allocation, that of the grant with its
// tenure. A call and its bid stay on the stack.
func TestPairAllocatesOnce(t *testing.T) {
	c := dlock.New(memlock.New(), nil)
	defer c.Close()
	ctx := context.Background()
	allocations := testing.AllocsPerRun(1000, func() { mustUnlock(t, mustLock(t, c, ctx, "x")) })
	if allocations > 1 {
		t.Errorf("a pair of Lock and Unlock takes %v allocations", allocations)
	}
}
