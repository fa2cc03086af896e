package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/memlock"
)

// A process that always wants a lock lets other processes have it too, whether many of
// its goroutines queue for it or one goroutine takes it again and again.
func TestBusyProcessDoesNotStarveOthers(t *testing.T) {
	for _, busy := range []int{1, 8} {
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				near := dlock.New(store, nil)
				defer near.Close()
				far := dlock.New(newNetwork(store), nil) // a millisecond away: always later than the near process
				defer far.Close()
				// The far process gets the lock after each time slice of the near one, which is 10 ms long.
				if got := contend(t, "shared", near, busy, far, 1); got[1] < 200 {
					t.Errorf("the near process had the lock %d times in 10 s, the far process %d times", got[0], got[1])
				}
				if got := contend(t, "alone", near, busy, far, 0); got[0] < 9_700 {
					t.Errorf("a process without contenders had the lock %d times in 10 s, held for 1 ms each", got[0])
				}
				time.Sleep(time.Minute) // attempts that overtook their end expire
			})
		})
	}
}

// A process that takes a set again and again pauses after a time slice, too.
func TestBusyLockAllDoesNotStarveOthers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		near := dlock.New(store, nil)
		defer near.Close()
		far := dlock.New(newNetwork(store), nil) // a millisecond away
		defer far.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		sets, singles := 0, 0
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				leases, err := near.LockAll(ctx, []string{"a", "b"})
				if err != nil {
					return
				}
				sets++
				time.Sleep(time.Millisecond)
				if err := leases.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := far.Lock(ctx, "b")
				if err != nil {
					return
				}
				singles++
				time.Sleep(time.Millisecond)
				mustUnlock(t, lease)
			}
		})
		wg.Wait()
		if singles < 200 {
			t.Errorf("the near process had the set %d times in 10 s, the far process one of its names %d times", sets, singles)
		}
		time.Sleep(time.Minute) // attempts that overtook their end expire
	})
}

// contend lets goroutines of two clients use a lock for 10 s, a millisecond each time, and
// returns how often each client had it.
func contend(t *testing.T, name string, a *dlock.Client, ofA int, b *dlock.Client, ofB int) (got [2]int64) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, side := range []struct {
		client *dlock.Client
		n      int
	}{{a, ofA}, {b, ofB}} {
		for range side.n {
			wg.Go(func() {
				for ctx.Err() == nil {
					lease, err := side.client.Lock(ctx, name)
					if err != nil {
						return
					}
					atomic.AddInt64(&got[i], 1)
					time.Sleep(time.Millisecond)
					mustUnlock(t, lease)
				}
			})
		}
	}
	wg.Wait()
	return got
}

// A process that does not want the lock any more does not delay the others.
func TestDepartedProcessDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 10 * time.Second
		got := compete(t, []time.Duration{lasts, time.Second, time.Second, time.Second}, func(process int) driver.Store { return distantFor(store, process) })
		if least := int(lasts/time.Millisecond) * 8 / 10; got.served[0] < least {
			t.Errorf("the process that stayed had the lock %d times; want at least %d", got.served[0], least)
		}
	})
}

// Two processes that do not describe themselves take turns as well.
func TestUnnamedProcessesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const lasts = 5 * time.Second
		got := compete(t, []time.Duration{lasts, lasts}, func(process int) driver.Store {
			unnamed := distantFor(store, process)
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

// Only a process that had the lock itself yields to others.
func TestFirstTimeWaiterDoesNotYield(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		holder := dlock.New(distantFor(store, 0), nil)
		defer holder.Close()
		waiter := dlock.New(distantFor(store, 1), nil)
		defer waiter.Close()
		const limit = 500 * time.Microsecond // shorter than a yield
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
			if got-released > limit {
				t.Fatalf("the waiter has the lock %v after its release", got-released)
			}
		}
	})
}

// unnotified is a store without notifications: its waiters try again and again.
type unnotified struct{ driver.Store }

// shares is what processes get of a lock that all of them want all the time.
type shares struct {
	served  []int           // how often each process had the lock
	longest []time.Duration // wait of a goroutine of each process
}

// goroutines is how many goroutines of a process compete.
const goroutines = 3

// compete lets processes with several goroutines each compete. Each stays for its time. A
// goroutine holds the lock for 1 ms, and wants it again 1 ms later.
func compete(t *testing.T, stay []time.Duration, open func(process int) driver.Store) shares {
	return competeHolding(t, time.Millisecond, stay, open)
}

// competeHolding is compete for goroutines that hold the lock for that long.
func competeHolding(t *testing.T, hold time.Duration, stay []time.Duration, open func(process int) driver.Store) shares {
	got := shares{make([]int, len(stay)), make([]time.Duration, len(stay))}
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
					time.Sleep(hold)
					mustUnlock(t, lease)
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	all.Wait()
	return got
}

// distantStore is the connection of one process to a store that serves near processes
// first.
type distantStore struct {
	remote
	holder  driver.Holder
	latency time.Duration
}

func (p *distantStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	time.Sleep(p.latency)
	req.Holder = p.holder
	return p.Store.Acquire(ctx, req)
}

// distantFor returns the connection of a process: the higher its number, the farther away.
func distantFor(store *memlock.Store, process int) *distantStore {
	latency := 100*time.Microsecond + time.Duration(process)*20*time.Microsecond
	return &distantStore{remote{store}, driver.Holder{Host: "here", PID: 100 + process}, latency}
}

// polledStore is a distantStore without notifications: waiters poll.
type polledStore struct{ *distantStore }

const pollInterval = 60 * time.Millisecond

func (p *polledStore) Traits() driver.Traits {
	traits := p.distantStore.Traits()
	traits.Reaction = pollInterval / 2
	return traits
}

func (p *polledStore) Watch(_ context.Context, req driver.Request, wake func()) (func(), error) {
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

// TestPauseOfAShortWaitIsShort: at the end of its time slice a process lets others try first. A caller
// that does not wait, or for less time than that, takes part for a tenth of a second at most.
func TestPauseOfAShortWaitIsShort(t *testing.T) {
	for name, opt := range map[string]dlock.Option{"TryLock": dlock.WithWait(0), "a short wait": dlock.WithWait(50 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				c := dlock.New(unnotified{store}, nil)
				defer c.Close()
				longest := time.Duration(0)
				for range 3 {
					lease := mustLock(t, c, t.Context(), "x")
					time.Sleep(10 * time.Second)
					mustUnlock(t, lease)
					began := time.Now()
					mustUnlock(t, mustLock(t, c, t.Context(), "x", opt))
					longest = max(longest, time.Since(began))
				}
				if longest == 0 || longest > 100*time.Millisecond {
					t.Errorf("the longest pause was %v; want some, and 100ms at most", longest)
				}
			})
		})
	}
}

// TestTryLockInALoopLetsOthersIn: a process that takes a lock again and again without waiting for it does
// not keep it from another process that polls.
func TestTryLockInALoopLetsOthersIn(t *testing.T) {
	for name, opt := range map[string]dlock.Option{"TryLock": dlock.WithWait(0), "a short wait": dlock.WithWait(time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				busy, other := dlock.New(unnotified{store}, nil), dlock.New(unnotified{store}, nil)
				defer busy.Close()
				defer other.Close()
				ended := time.Now().Add(time.Minute)
				var all sync.WaitGroup
				all.Go(func() {
					for time.Now().Before(ended) {
						lease, err := busy.Lock(t.Context(), "x", opt)
						if errors.Is(err, dlock.ErrHeld) {
							time.Sleep(time.Millisecond)
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(10 * time.Millisecond)
						mustUnlock(t, lease)
					}
				})
				times := 0
				for time.Now().Before(ended) {
					lease := mustLock(t, other, t.Context(), "x")
					times++
					time.Sleep(10 * time.Millisecond)
					mustUnlock(t, lease)
				}
				all.Wait()
				if times < 20 {
					t.Errorf("the other process had the lock %d times in a minute", times)
				}
			})
		})
	}
}
