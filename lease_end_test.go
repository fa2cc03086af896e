package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// leaseLog checks that the hooks report for every lease that it was acquired, and then once how it ended.
type leaseLog struct {
	mu   sync.Mutex
	seen map[string]string // by name and token
	bad  []string
}

func (l *leaseLog) note(e dlock.Event, what, after string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = make(map[string]string)
	}
	lease := fmt.Sprint(e.Name, " with token ", e.Token)
	if l.seen[lease] != after && len(l.bad) < 10 {
		l.bad = append(l.bad, fmt.Sprintf("%s is %s after it was %q", lease, what, l.seen[lease]))
	}
	l.seen[lease] = what
}

func (l *leaseLog) hooks() dlock.Hooks {
	return dlock.Hooks{
		Acquired: func(e dlock.Event) {
			if e.Err == nil {
				l.note(e, "acquired", "")
			}
		},
		Released: func(e dlock.Event) { l.note(e, "released", "acquired") },
		Lost:     func(e dlock.Event) { l.note(e, "lost", "acquired") },
	}
}

func (l *leaseLog) check(t *testing.T) {
	t.Helper()
	for _, problem := range l.bad {
		t.Error(problem)
	}
	open := 0
	for _, what := range l.seen {
		if what == "acquired" {
			open++
		}
	}
	if open > 0 {
		t.Errorf("%d of %d leases have no end", open, len(l.seen))
	}
}

// TestReleasedWhenCloseMeetsDo: Close ends the lock while Do, or a caller before Unlock, has it.
func TestReleasedWhenCloseMeetsDo(t *testing.T) {
	for name, hold := range map[string]func(ctx context.Context, c *dlock.Client, held func(context.Context)) error{
		"Do": func(ctx context.Context, c *dlock.Client, held func(context.Context)) error {
			return c.Do(ctx, "x", func(ctx context.Context) error { held(ctx); return nil })
		},
		"Unlock": func(ctx context.Context, c *dlock.Client, held func(context.Context)) error {
			lease, err := c.Lock(ctx, "x")
			if err != nil {
				return err
			}
			held(lease.Context())
			return lease.Unlock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				var log leaseLog
				c := dlock.New(slowRelease{store}, &dlock.Options{Hooks: log.hooks()})
				closed := make(chan error)
				err := hold(t.Context(), c, func(ctx context.Context) {
					go func() { closed <- c.Close() }()
					<-ctx.Done()
				})
				if !errors.Is(err, dlock.ErrNotHeld) || !errors.Is(err, dlock.ErrClosed) {
					t.Errorf("got: %v; want ErrNotHeld and ErrClosed", err)
				}
				if err := <-closed; err != nil {
					t.Error(err)
				}
				log.check(t)
			})
		})
	}
}

// TestHooksBalance: Close, Break and losses come while callers of all kinds lock, hand over, share, give up
// and unlock.
func TestHooksBalance(t *testing.T) {
	kinds := [][]dlock.Option{
		nil, {dlock.WithShared()}, {dlock.WithWait(0)}, {dlock.WithWait(time.Millisecond)}, {dlock.WithFair()},
		{dlock.WithShared(), dlock.WithWait(time.Millisecond)}, {dlock.WithFixedTTL(5 * time.Millisecond)},
	}
	for round := range 100 {
		var log leaseLog
		store := memlock.New()
		c := dlock.New(store, &dlock.Options{Hooks: log.hooks()})
		var callers sync.WaitGroup
		for i := range 12 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+random.IntN(10))*time.Millisecond)
					lease, err := c.Lock(ctx, "x", kinds[random.IntN(len(kinds))]...)
					cancel()
					switch {
					case errors.Is(err, dlock.ErrClosed):
						return
					case err == nil:
						if random.IntN(4) == 0 {
							time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
						}
						_ = lease.Unlock(context.Background()) // it may be lost
					}
				}
			})
		}
		for range 3 {
			time.Sleep(time.Millisecond)
			for info := range store.List(t.Context(), "") {
				_ = store.Break(t.Context(), "x", info.Token) // if it is still held
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		callers.Wait()
		log.check(t)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// revocable is a store that reports a loss when the test says so.
type revocable struct {
	*memlock.Store
	revoke func()
}

func (s *revocable) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.ReportsLoss = true
	return traits
}

func (s *revocable) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.revoke = req.Lost
	return s.Store.Acquire(ctx, req)
}

// TestFollowingContextsEndAtOnce: every context that ends with a lease has ended when the goroutine that
// reports the loss goes on.
func TestFollowingContextsEndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &revocable{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		leases, err := c.LockAll(t.Context(), []string{"x"})
		if err != nil {
			t.Fatal(err)
		}
		again := mustLock(t, c, leases.Context(), "x")
		twice := mustLock(t, c, again.Context(), "x")
		_ = c.Do(twice.Context(), "x", func(ctx context.Context) error {
			contexts := map[string]context.Context{"Leases": leases.Context(), "a lease that re-entered": again.Context(),
				"one that re-entered that": twice.Context(), "Do": ctx}
			store.revoke()
			for name, ctx := range contexts {
				select {
				case <-ctx.Done():
				default:
					t.Errorf("the context of %s goes on", name)
				}
			}
			return nil
		})
		_, _, _ = twice.Unlock(t.Context()), again.Unlock(t.Context()), leases.Unlock(t.Context())
	})
}
