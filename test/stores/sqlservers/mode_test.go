package sqlservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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

// TestOlderVersions: a version that does not know shared locks takes a lock with shared holders
// or permits for one that is held, as long as one of them holds it. Locks and places of
// older versions count for this one.
func TestOlderVersions(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, admin := s.open(t), s.admin(t)
		held := func(name string) bool {
			names, err := column[string](within(t), admin, s.held+" AND name = '"+name+"'")
			check(t, err)
			return len(names) > 0
		}
		for name, mode := range map[string]driver.Mode{"shared": shared, "permits": two} {
			first := requestIn(mode, name)
			first.TTL = time.Minute
			long, err := store.Acquire(within(t), first)
			check(t, err)
			second := acquireIn(t, store, mode, name)
			release(t, store, long)
			var owner, holder string
			check(t, admin.QueryRowContext(within(t), "SELECT owner, holder FROM dlock_locks WHERE name = '"+name+"'").Scan(&owner, &holder))
			if !held(name) || len(owner) == 32 || driver.DecodeHolder(holder).Program == "" {
				t.Errorf("the row of %q has the owner %q and the holder %v", name, owner, driver.DecodeHolder(holder))
			}
			release(t, store, second)
			if held(name) {
				t.Errorf("%q is held after its last holder has released it", name)
			}
		}
	})
}

// TestRenewSharesBesideALockedRow: a transaction that keeps the row of one name locked keeps its
// shares from being renewed, and none of the shares that are renewed with it.
func TestRenewSharesBesideALockedRow(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		const locks, blocked, gone = 60, 5, 0 // one transaction renews fifty
		store := s.open(t)
		reqs := make([]driver.Request, locks)
		for i := range reqs {
			mode := shared
			if i%2 > 0 {
				mode = two
			}
			reqs[i] = requestIn(mode, fmt.Sprintf("lock %02d", i))
		}
		grants, err := store.AcquireAll(within(t), reqs)
		check(t, err)
		release(t, store, grants[gone])
		if errs := store.Renew(within(t), grants[1:]); errs != nil {
			t.Fatalf("Renew: %v", errs)
		}
		defer lockRows(t, s.admin(t), "dlock_locks", grants[blocked].Name)()
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		errs := store.Renew(ctx, grants)
		if len(errs) != locks {
			t.Fatalf("Renew: %v; want an error for each", errs)
		}
		for i, err := range errs {
			switch {
			case i == blocked && (err == nil || errors.Is(err, driver.ErrNotHeld)):
				t.Errorf("Renew of a share whose row is locked: %v; want that the outcome is unknown", err)
			case i == gone && !errors.Is(err, driver.ErrNotHeld):
				t.Errorf("Renew of a share that was released: %v; want ErrNotHeld", err)
			case i != blocked && i != gone && err != nil:
				t.Errorf("Renew of share %d, whose row is not locked: %v", i, err)
			}
		}
	})
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
		if errs := store.Renew(within(t), grants); errs != nil {
			t.Errorf("Renew: %v", errs)
		}
	})
}

// TestDamagedShares: a list of holders that cannot be read excludes all requests, shows no owner, and
// can be broken.
func TestDamagedShares(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, admin := s.open(t), s.admin(t)
		for name, mode := range map[string]driver.Mode{"shared": shared, "permits": two} {
			grant := acquireIn(t, store, mode, name)
			run(t, admin, "UPDATE dlock_locks SET holder = substr(holder, 1, 80) WHERE name = '"+name+"'")
			if _, err := store.Acquire(within(t), requestIn(mode, name)); err == nil {
				t.Errorf("%q was granted beside holders that are not known", name)
			}
			for info, err := range store.List(within(t), name) {
				check(t, err)
				if text := fmt.Sprintf("%+v", info); strings.Contains(text, grant.Owner.Hex()) {
					t.Errorf("the owner is in the list of locks: %s", text)
				}
				if err := store.Break(within(t), name, info.Token); err != nil {
					t.Errorf("Break of %q: %v", name, err)
				}
			}
			release(t, store, acquire(t, store, name)...)
		}
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
