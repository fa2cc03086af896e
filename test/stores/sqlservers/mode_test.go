package sqlservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

var (
	shared = driver.Mode{Shared: true}
	two    = driver.Mode{Limit: 2}
)

// requestIn returns a request of a new owner.
func requestIn(mode driver.Mode, name string) driver.Request {
	req := request(name)
	req.Mode = mode
	return req
}

func acquireIn(t testing.TB, store driver.Store, mode driver.Mode, name string) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(within(t), requestIn(mode, name))
	if err != nil {
		t.Fatalf("Acquire(%q) in mode %v: %v", name, mode, err)
	}
	return grant
}

// TestRenewSharesInSmallTransactions: a renewal of many shares keeps most of their rows unlocked, for
// other holders and waiters of these names.
func TestRenewSharesInSmallTransactions(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		const locks = 120
		store, network := s.behindProxy(t)
		reqs := make([]driver.Request, locks)
		for i := range reqs {
			reqs[i] = requestIn(shared, fmt.Sprintf("lock %03d", i))
		}
		grants, err := store.AcquireAll(within(t), reqs)
		check(t, err)
		kept := keep(network, isCommit, func() {})
		renewed := make(chan []error, 1)
		go func() { renewed <- store.Renew(within(t), grants) }()
		first := kept(t)
		unlocked, err := column[string](within(t), s.admin(t), "SELECT name FROM dlock_locks FOR UPDATE SKIP LOCKED")
		first.Deliver()
		check(t, err)
		if len(unlocked) < locks/2 {
			t.Errorf("a renewal keeps %d rows of %d locked", locks-len(unlocked), locks)
		}
		<-renewed // the server may have ended a transaction that waited for too long
		mustRenew(t, store, grants...)
	})
}

// TestWriterIsNotStarved: an exclusive lock is granted while readers of several programs hold the
// lock all the time, each for a while longer than the one before.
func TestWriterIsNotStarved(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		ctx, stop := context.WithCancel(within(t))
		var readers sync.WaitGroup
		defer readers.Wait()
		defer stop()
		var reading atomic.Int64
		for range 3 {
			client := s.client(t)
			for range 2 {
				readers.Go(func() {
					for ctx.Err() == nil {
						err := client.Do(ctx, "x", func(ctx context.Context) error {
							reading.Add(1)
							defer reading.Add(-1)
							<-time.After(20 * time.Millisecond)
							return nil
						}, dlock.WithShared())
						if err != nil && ctx.Err() == nil {
							t.Errorf("a reader: %v", err)
							return
						}
					}
				})
			}
		}
		writer := s.client(t)
		for range 5 {
			lease, err := writer.Lock(ctx, "x")
			if err != nil {
				t.Fatalf("the exclusive lock: %v", err)
			}
			if n := reading.Load(); n > 0 {
				t.Errorf("%d readers beside an exclusive holder", n)
			}
			check(t, lease.Unlock(ctx))
		}
	})
}

// TestModesTogether: several programs take two names in all modes, alone and together. No holder is
// beside another that excludes it, and all of them get ahead.
func TestModesTogether(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		const programs, callers, turns = 3, 3, 8
		names := []string{"a", "b"}
		var counts [2]struct{ readers, writers atomic.Int64 }
		enter := func(i int, mode driver.Mode, by int64) {
			if mode.Shared {
				counts[i].readers.Add(by)
			} else {
				counts[i].writers.Add(by)
			}
			if r, w := counts[i].readers.Load(), counts[i].writers.Load(); by > 0 && (w > 1 || w > 0 && r > 0) {
				t.Errorf("%q has %d shared holders and %d exclusive ones", names[i], r, w)
			}
		}
		var all sync.WaitGroup
		for range programs {
			store := s.open(t)
			for range callers {
				all.Go(func() {
					for turn := 0; turn < turns && !t.Failed(); {
						reqs := []driver.Request{
							requestIn(driver.Mode{Shared: rand.N(3) > 0}, "a"), requestIn(driver.Mode{Shared: rand.N(3) > 0}, "b"),
						}
						first := 0
						if rand.N(2) > 0 {
							first = rand.N(2)
							reqs = reqs[first : first+1]
						}
						grants, err := acquireSome(within(t), store, reqs)
						switch {
						case errors.Is(err, driver.ErrHeld):
							<-time.After(time.Millisecond)
							continue
						case err != nil:
							t.Errorf("Acquire: %v", err)
							return
						}
						for i := range grants {
							enter(first+i, reqs[i].Mode, 1)
						}
						<-time.After(time.Millisecond)
						for i, grant := range grants {
							enter(first+i, reqs[i].Mode, -1)
							if err := store.Release(within(t), grant); err != nil {
								t.Errorf("Release: %v", err)
							}
						}
						turn++
					}
				})
			}
		}
		all.Wait()
	})
}

func acquireSome(ctx context.Context, store *sqllock.Store, reqs []driver.Request) ([]driver.Grant, error) {
	if len(reqs) > 1 {
		return store.AcquireAll(ctx, reqs)
	}
	grant, err := store.Acquire(ctx, reqs[0])
	return []driver.Grant{grant}, err
}

// TestSharesAndServerDefaults: shares are counted right whatever the isolation of transactions is
// by default.
func TestSharesAndServerDefaults(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, isolation := range d.isolations {
			t.Run(isolation, func(t *testing.T) {
				t.Parallel()
				s := d.target(t, isolation)
				stores := []*sqllock.Store{s.open(t), s.open(t)}
				var holders atomic.Int64
				var all sync.WaitGroup
				for i := range 6 {
					store, ctx := stores[i%2], within(t)
					all.Go(func() {
						for granted := 0; granted < 3; {
							grant, err := store.Acquire(ctx, requestIn(two, "x"))
							switch {
							case err == nil:
								granted++
								if n := holders.Add(1); n > 2 {
									t.Errorf("%d holders at once of two permits", n)
								}
								<-time.After(5 * time.Millisecond)
								holders.Add(-1)
								err = store.Release(ctx, grant)
							case errors.Is(err, driver.ErrHeld):
								<-time.After(time.Millisecond)
								continue
							}
							if err != nil {
								t.Errorf("a permit: %v", err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		}
	})
}

// useShares makes every call for locks that have several holders.
func useShares(ctx context.Context, store *sqllock.Store) error {
	grant, err := store.Acquire(ctx, request("s"))
	if err == nil {
		err = store.Downgrade(ctx, grant)
	}
	if err != nil {
		return err
	}
	other, err := store.Acquire(ctx, requestIn(shared, "s"))
	if err != nil {
		return err
	}
	writer := request("s")
	writer.Queue = true
	if _, err := store.Acquire(ctx, writer); !errors.Is(err, driver.ErrHeld) {
		return fmt.Errorf("an exclusive lock beside shared ones: %w", err)
	}
	err = errors.Join(store.Renew(ctx, []driver.Grant{grant, other})...)
	err = errors.Join(err, store.Break(ctx, "s", other.Token), store.Release(ctx, grant))
	if err != nil {
		return err
	}
	if grant, err = store.Acquire(ctx, writer); err != nil {
		return err
	}
	return store.Release(ctx, grant)
}
