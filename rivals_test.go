package dlock_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
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

// lookout is a place on a store that wakes nobody: who waits looks now and then.
type lookout struct{ *place }

const pollInterval = 60 * time.Millisecond

func (p *lookout) Traits() driver.Traits {
	traits := p.place.Traits()
	traits.Handover = pollInterval / 2
	return traits
}

func (p *lookout) Watch(_ context.Context, req driver.Request, wake func()) (func(), error) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(backoff.Jitter(pollInterval)):
			}
			held := false
			for range p.List(context.Background(), req.Name) {
				held = true
			}
			if !held {
				wake()
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) }), nil
}

// contention is what processes get of a lock that all of them want all the time.
// A goroutine has the lock for 1 ms, and wants it again 1 ms later.
type contention struct {
	served  []int           // how often each process had the lock
	longest []time.Duration // that one of its goroutines has waited
}

// compete lets processes with goroutines contend. The nearer ones are always sooner;
// each stays until its time is over.
func compete(t *testing.T, stay []time.Duration, open func(process int) driver.Store) contention {
	const goroutines = 3
	got := contention{make([]int, len(stay)), make([]time.Duration, len(stay))}
	start := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, stays := range stay {
		c := dlock.New(open(i), nil)
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

// placeOf is the place of a process: the later it comes the farther away.
func placeOf(store *memlock.Store, process int) *place {
	latency := 100*time.Microsecond + time.Duration(process)*20*time.Microsecond
	return &place{store, driver.Holder{Host: "here", PID: 100 + process}, latency}
}

// TestProcessesTakeTurns: where the store always serves the same ones first, the
// others have their share all the same.
func TestProcessesTakeTurns(t *testing.T) {
	for _, processes := range []int{4, 24} {
		t.Run(strconv.Itoa(processes), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				const lasts = time.Minute
				got := compete(t, slices.Repeat([]time.Duration{lasts}, processes), func(process int) driver.Store { return placeOf(store, process) })
				total := 0
				for _, n := range got.served {
					total += n
				}
				for i, n := range got.served {
					if n < total/processes/2 {
						t.Errorf("process %d had the lock %d times of %d", i, n, total)
					}
					if got.longest[i] > lasts/2 { // it takes a while to know each other
						t.Errorf("somebody in process %d waited %v", i, got.longest[i])
					}
				}
				if least := int(lasts/time.Millisecond) * 7 / 10; total < least {
					t.Errorf("the lock was had %d times in %v; want at least %d", total, lasts, least)
				}
			})
		})
	}
}

// TestNobodyWaitsForWhoLeft: who does not want the lock any more keeps nobody from
// having it.
func TestNobodyWaitsForWhoLeft(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 10 * time.Second
		got := compete(t, []time.Duration{lasts, time.Second, time.Second, time.Second}, func(process int) driver.Store { return placeOf(store, process) })
		if least := int(lasts/time.Millisecond) * 8 / 10; got.served[0] < least {
			t.Errorf("the one that stayed had the lock %d times; want at least %d", got.served[0], least)
		}
	})
}

// TestTurnsOfTheUnnamed: two processes that do not say who they are alternate as well.
func TestTurnsOfTheUnnamed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 5 * time.Second
		got := compete(t, []time.Duration{lasts, lasts}, func(process int) driver.Store {
			unnamed := placeOf(store, process)
			unnamed.holder = driver.Holder{}
			return unnamed
		})
		for i, n := range got.served {
			if least := int(lasts/time.Millisecond) * 3 / 10; n < least {
				t.Errorf("process %d had the lock %d times; want at least %d", i, n, least)
			}
		}
	})
}

// TestPollersHaveTheirTurn: a process pauses for as long as those need who only look
// now and then.
func TestPollersHaveTheirTurn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = time.Minute
		got := compete(t, []time.Duration{lasts, lasts, lasts}, func(process int) driver.Store { return &lookout{placeOf(store, process)} })
		total := 0
		for _, n := range got.served {
			total += n
		}
		for i, n := range got.served {
			if n < total/6 {
				t.Errorf("process %d had the lock %d times of %d", i, n, total)
			}
			if got.longest[i] > lasts/6 {
				t.Errorf("somebody in process %d waited %v", i, got.longest[i])
			}
		}
		if least := int(lasts/time.Millisecond) * 7 / 10; total < least {
			t.Errorf("the lock was had %d times in %v; want at least %d", total, lasts, least)
		}
	})
}

// TestWhoJustWaitsIsServedAtOnce: giving way is for those who had the lock themselves.
func TestWhoJustWaitsIsServedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		holder := dlock.New(placeOf(store, 0), nil)
		defer holder.Close()
		waiter := dlock.New(placeOf(store, 1), nil)
		defer waiter.Close()
		const way = 500 * time.Microsecond // less than it is
		for range 100 {
			lease := mustLock(t, holder, t.Context(), "x")
			var got time.Duration
			var all sync.WaitGroup
			all.Go(func() {
				lease := mustLock(t, waiter, t.Context(), "x")
				got = time.Duration(time.Now().UnixNano())
				mustUnlock(t, lease)
			})
			time.Sleep(time.Second)
			released := time.Duration(time.Now().UnixNano())
			mustUnlock(t, lease)
			all.Wait()
			if got-released > way {
				t.Fatalf("the one who waits has the lock %v after it was released", got-released)
			}
		}
	})
}
