package dlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// place is a process's way to a store that serves some sooner than others.
type place struct {
	*memlock.Store
	holder  driver.Holder
	latency time.Duration
}

func (p *place) Traits() driver.Traits {
	traits := p.Store.Traits()
	traits.Local = false
	return traits
}

func (p *place) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	time.Sleep(p.latency)
	req.Holder = p.holder
	return p.Store.Acquire(ctx, req)
}

func (p *place) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	req.Holder = p.holder
	return p.Store.Pass(ctx, grant, req)
}

// contention is what processes get of a lock that all of them want all the time.
// A goroutine has the lock for 1 ms, and wants it again 1 ms later.
type contention struct {
	served  []int           // how often each process had the lock
	longest []time.Duration // that one of its goroutines has waited
}

// compete lets processes with goroutines contend. The nearer ones are always sooner;
// each stays until its time is over.
func compete(t *testing.T, store *memlock.Store, stay []time.Duration, holder func(process int) driver.Holder) contention {
	const goroutines = 3
	got := contention{make([]int, len(stay)), make([]time.Duration, len(stay))}
	start := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, stays := range stay {
		latency := 100*time.Microsecond + time.Duration(i)*50*time.Microsecond
		c := dlock.New(&place{store, holder(i), latency}, nil)
		defer c.Close()
		for range goroutines {
			all.Go(func() {
				for time.Since(start) < stays {
					asked := time.Now()
					lease := mustLock(t, c, t.Context(), "x")
					mu.Lock()
					got.served[i]++
					got.longest[i] = max(got.longest[i], time.Since(asked))
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mustUnlock(t, lease)
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	all.Wait()
	return got
}

func byPID(process int) driver.Holder { return driver.Holder{Host: "here", PID: 100 + process} }

// TestProcessesTakeTurns: where the store always serves the same ones first, the
// others have their share all the same.
func TestProcessesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 10 * time.Second
		got := compete(t, store, []time.Duration{lasts, lasts, lasts, lasts}, byPID)
		total := 0
		for _, n := range got.served {
			total += n
		}
		for i, n := range got.served {
			if n < total/8 {
				t.Errorf("process %d had the lock %d times of %d", i, n, total)
			}
			if got.longest[i] > lasts/2 { // it takes a while to know each other
				t.Errorf("somebody in process %d waited %v", i, got.longest[i])
			}
		}
		if least := int(lasts/time.Millisecond) * 8 / 10; total < least {
			t.Errorf("the lock was had %d times in %v; want at least %d", total, lasts, least)
		}
	})
}

// TestNobodyWaitsForWhoLeft: who does not want the lock any more keeps nobody from
// having it.
func TestNobodyWaitsForWhoLeft(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 10 * time.Second
		got := compete(t, store, []time.Duration{lasts, time.Second, time.Second, time.Second}, byPID)
		if least := int(lasts/time.Millisecond) * 8 / 10; got.served[0] < least {
			t.Errorf("the one that stayed had the lock %d times; want at least %d", got.served[0], least)
		}
	})
}

// TestTurnsOfTheUnnamed: two processes that do not say who they are alternate as well.
func TestTurnsOfTheUnnamed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 5 * time.Second
		got := compete(t, store, []time.Duration{lasts, lasts}, func(int) driver.Holder { return driver.Holder{} })
		for i, n := range got.served {
			if least := int(lasts/time.Millisecond) * 3 / 10; n < least {
				t.Errorf("process %d had the lock %d times; want at least %d", i, n, least)
			}
		}
	})
}
