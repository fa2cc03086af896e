package redis

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
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

var (
	shared  = driver.Mode{Shared: true}
	permits = driver.Mode{Limit: 2}
)

// inMode returns a request that lasts for a minute.
func inMode(mode driver.Mode, name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute, Mode: mode}
}

func mustAcquire(t *testing.T, store driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire of %q in mode %v: %v", req.Name, req.Mode, err)
	}
	return grant
}

func mustRelease(t *testing.T, store driver.Store, grant driver.Grant) {
	t.Helper()
	if err := store.Release(t.Context(), grant); err != nil {
		t.Fatalf("Release of %q: %v", grant.Name, err)
	}
}

// TestLocksAreWrittenAsRReadWriteLockDoes: Java takes a hash without the field mode for a free
// lock, and removes the share of a reader without the key that expires with it. It refuses a mode
// that it does not know.
func TestLocksAreWrittenAsRReadWriteLockDoes(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	store, _ := openURL(t, server.URL())
	acquireOne(t, store, "warm") // from now on the server's clock is known
	for mode, want := range map[driver.Mode]string{{}: "write", shared: "read", permits: "2"} {
		for name, fair := range map[string]bool{"plain": false, "fair": true} {
			req := inMode(mode, name+"-"+want)
			req.Fair = fair
			grant := mustAcquire(t, store, req)
			fields := raw.HGetAll(t.Context(), req.Name).Val()
			if fields["mode"] != want || len(fields) != 2 {
				t.Errorf("%s is %v; want the mode %q and the holder", req.Name, fields, want)
			}
			left := raw.PTTL(t.Context(), "{"+req.Name+"}:"+req.Owner.Hex()+":rwlock_timeout:1").Val()
			if isShare := mode != (driver.Mode{}); isShare != (left > 0) || isShare && fields[req.Owner.Hex()] != "1" {
				t.Errorf("%s is %v, and its share expires in %v", req.Name, fields, left)
			}
			if isLock := mode.Limit == 0; isLock {
				if err := store.(driver.Downgrader).Downgrade(t.Context(), grant); err != nil {
					t.Error(err)
				}
				fields = raw.HGetAll(t.Context(), req.Name).Val()
				if fields["mode"] != "read" || fields[req.Owner.Hex()] != "1" || len(fields) != 2 {
					t.Errorf("%s is %v after a downgrade", req.Name, fields)
				}
			}
			mustRelease(t, store, grant)
		}
	}
}

// An older dlock writes a mutex of Redisson: a hash with the holder value as its only field. These
// are its acquisition of a lock that may be held, and its release.
var (
	oldAcquire = redis.NewScript(`if redis.call('pttl', KEYS[1]) ~= -2 then return redis.call('hkeys', KEYS[1])[1] end
redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 60000) return false`)
	oldRelease = redis.NewScript(`if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0') return 1`)
)

// TestOlderVersionExcludesAndIsExcluded: while processes are upgraded one after the other, an older
// dlock and this one exclude and wake each other in every mode.
func TestOlderVersionExcludesAndIsExcluded(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	store, client := openURL(t, server.URL())
	const old = `0123456789abcdef0123456789abcdef:1763300000000000:{"host":"web-1","pid":4711,"program":"billing"}`
	for mode, opts := range map[driver.Mode][]dlock.Option{
		{}: nil, shared: {dlock.WithShared()}, permits: {dlock.WithLimit(2)},
	} {
		for _, fair := range []bool{false, true} {
			name := fmt.Sprintf("%v %v", mode, fair)
			acquires := func() bool {
				err := oldAcquire.Run(t.Context(), raw, []string{name}, old).Err()
				if err != nil && !errors.Is(err, redis.Nil) {
					t.Fatal(err)
				}
				return errors.Is(err, redis.Nil)
			}
			if !acquires() {
				t.Fatalf("%s: an older dlock does not get a free lock", name)
			}
			req := inMode(mode, name)
			req.Fair = fair
			if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrMode) {
				t.Errorf("%s: a lock that an older dlock has: %v; want ErrHeld or ErrMode", name, err)
			}
			info, found, err := client.Find(t.Context(), name)
			if err != nil || !found || info.Holder.Program != "billing" {
				t.Errorf("%s: the lock of an older dlock is found as %+v, %v, %v", name, info, found, err)
			}
			if fair {
				opts = append(opts, dlock.WithFair())
			}
			var w *waiter
			if mode.Limit == 0 {
				w = waitFor(t.Context(), client, name, opts...)
			}
			if n, err := oldRelease.Run(t.Context(), raw, []string{name}, old).Int(); n != 1 || err != nil {
				t.Errorf("%s: an older dlock cannot release: %d, %v", name, n, err)
			}
			if w != nil {
				if err := w.within(t, 10*time.Second).Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
			grant := mustAcquire(t, store, req)
			if acquires() {
				t.Errorf("%s: an older dlock got a lock that is held", name)
			}
			mustRelease(t, store, grant)
			if !acquires() {
				t.Errorf("%s: an older dlock does not get a lock that was released", name)
			}
		}
	}
}

// TestLockLastsAsLongAsItsLongestShare: programs that see only the lock's own key, as Java does,
// wait for a dead reader no longer than its TTL.
func TestLockLastsAsLongAsItsLongestShare(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	store, _ := openURL(t, server.URL())
	for _, mode := range []driver.Mode{shared, permits} {
		name := mode.String()
		short := inMode(mode, name)
		short.TTL = 20 * time.Second
		mustAcquire(t, store, short)
		long := mustAcquire(t, store, inMode(mode, name))
		if left := raw.PTTL(t.Context(), name).Val(); left < 40*time.Second {
			t.Errorf("%s: the lock expires in %v, its longest share in a minute", name, left)
		}
		// As if the server had been stopped for a moment between two commands of the script.
		if err := raw.PExpire(t.Context(), name, long.TTL+500*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, store, long)
		if left := raw.PTTL(t.Context(), name).Val(); left <= 0 || left > short.TTL {
			t.Errorf("%s: the lock expires in %v, its only share in %v", name, left, short.TTL)
		}
	}
}

// TestDowngradeKeepsTheExpiry: a downgrade does not prolong the lock, and what is left of it is the
// TTL of the share.
func TestDowngradeKeepsTheExpiry(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	store, _ := openURL(t, server.URL())
	grant := mustAcquire(t, store, inMode(driver.Mode{}, "x"))
	if err := raw.PExpire(t.Context(), "x", 10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	if err := store.(driver.Downgrader).Downgrade(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"x", "{x}:" + grant.Owner.Hex() + ":rwlock_timeout:1"} {
		if left := raw.PTTL(t.Context(), key).Val(); left <= 0 || left > 10*time.Second {
			t.Errorf("%s expires in %v; want at most 10 s", key, left)
		}
	}
	other := mustAcquire(t, store, inMode(shared, "x"))
	mustRelease(t, store, grant)
	late := grant
	late.Token = 0
	for what, err := range map[string]error{
		"a late downgrade": store.(driver.Downgrader).Downgrade(t.Context(), grant),
		"a late renewal":   errors.Join(store.Renew(t.Context(), []driver.Grant{grant})...),
		"a late release":   store.Release(t.Context(), late),
	} {
		if !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: %v; want ErrNotHeld", what, err)
		}
	}
	if errs := store.Renew(t.Context(), []driver.Grant{other}); errs != nil {
		t.Errorf("another share was lost: %v", errs)
	}
}

// TestHashThatIsNoLockIsRefused: a hash that looks a little like a lock is refused, not listed, and
// stays as it is.
func TestHashThatIsNoLockIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	store, _ := openURL(t, server.URL())
	for _, mode := range []string{"read", "write", "7", "dark"} {
		if err := raw.HSet(t.Context(), mode, "mode", mode, "volume", 1, "name", "x").Err(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []driver.Mode{{}, shared, permits, {Limit: 7}} {
			for _, fair := range []bool{false, true} {
				req := inMode(want, mode)
				req.Fair = fair
				if _, err := store.Acquire(t.Context(), req); err == nil {
					t.Errorf("a hash with mode %q was locked in mode %v", mode, want)
				}
				_ = store.Release(t.Context(), driver.Grant{Name: mode, Owner: req.Owner})
			}
		}
		if n := len(listed(t, store, mode)); n != 0 {
			t.Errorf("a hash with mode %q is listed as a lock with %d holders", mode, n)
		}
		if fields := raw.HGetAll(t.Context(), mode).Val(); len(fields) != 3 || fields["volume"] != "1" || fields["name"] != "x" {
			t.Errorf("a hash with mode %q has become %v", mode, fields)
		}
	}
}

// TestWriterIsNotStarved: a writer comes in, alone, although readers of several clients always
// overlap.
func TestWriterIsNotStarved(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t, inMemory...)
			ctx, cancel := context.WithCancel(t.Context())
			var inside atomic.Int64
			var readers sync.WaitGroup
			defer readers.Wait()
			defer cancel()
			for range 3 {
				_, client := openURL(t, top.url)
				for range 4 {
					readers.Go(func() {
						for ctx.Err() == nil {
							lease, err := client.Lock(ctx, "busy", dlock.WithShared())
							if err != nil {
								continue // the test has ended, or the lease shows it below
							}
							inside.Add(1)
							<-time.After(5 * time.Millisecond)
							inside.Add(-1)
							_ = lease.Unlock(context.WithoutCancel(ctx))
						}
					})
				}
			}
			_, writer := openURL(t, top.url)
			for range 5 {
				began := time.Now()
				lease, err := writer.Lock(ctx, "busy", dlock.WithWait(20*time.Second))
				if err != nil {
					t.Fatalf("the writer waited for %v: %v", time.Since(began), err)
				}
				if n := inside.Load(); n != 0 {
					t.Errorf("%d readers are inside beside the writer", n)
				}
				if err := lease.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestPlacesAreRemoved: an exclusive waiter that shared holders refused leaves no place when it is
// granted the lock, and when it gives up.
func TestPlacesAreRemoved(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	store, _ := openURL(t, server.URL())
	places := func(want int64) {
		t.Helper()
		if n := raw.ZCard(t.Context(), "dlock:writers:{x}").Val(); n != want {
			t.Errorf("%d places of exclusive waiters; want %d", n, want)
		}
	}
	reader := mustAcquire(t, store, inMode(shared, "x"))
	quitter, writer := inMode(driver.Mode{}, "x"), inMode(driver.Mode{}, "x")
	quitter.Queue, writer.Queue = true, true
	for _, req := range []driver.Request{quitter, writer} {
		held, refused := errors.AsType[*driver.HeldError](func() error { _, err := store.Acquire(t.Context(), req); return err }())
		if !refused || !held.Mode.Shared {
			t.Fatalf("an exclusive request beside a reader: %v; want that it is held by a shared holder", held)
		}
	}
	places(2)
	if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: quitter.Owner}); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of a waiter: %v; want ErrNotHeld", err)
	}
	places(1)
	mustRelease(t, store, reader)
	grant := mustAcquire(t, store, writer)
	places(0)
	mustRelease(t, store, grant)
	mustRelease(t, store, mustAcquire(t, store, inMode(shared, "x")))
}

// TestPermitsAreHandedOn: permits that are released at the same moment wake as many waiters, fair
// or not, long before anything expires.
func TestPermitsAreHandedOn(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for name, opts := range map[string][]dlock.Option{"unfair": nil, "fair": {dlock.WithFair()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := append(opts, dlock.WithLimit(3), dlock.WithTTL(time.Minute))
			_, holder := openURL(t, server.URL())
			_, client := openURL(t, server.URL())
			for range 5 {
				var leases []*dlock.Lease
				for range 3 {
					lease, err := holder.Lock(t.Context(), name, opts...)
					if err != nil {
						t.Fatal(err)
					}
					leases = append(leases, lease)
				}
				var waiters []*waiter
				for range 3 {
					waiters = append(waiters, waitFor(t.Context(), client, name, opts...))
				}
				eventually(t, "a waiter is known", func() bool {
					info, _, err := holder.Find(t.Context(), name)
					return err == nil && info.Waiters > 0
				})
				var releases sync.WaitGroup
				for _, lease := range leases {
					releases.Go(func() {
						if err := lease.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				releases.Wait()
				for _, w := range waiters {
					if err := w.within(t, 10*time.Second).Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestPlainProtocolRefusesFairnessAndModes: it has no fair locks, no shared locks and no permits, and
// says so.
func TestPlainProtocolRefusesFairnessAndModes(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	store, client := openURL(t, server.URL()+"?protocol=plain")
	fair := inMode(driver.Mode{}, "x")
	fair.Fair = true
	for _, req := range []driver.Request{fair, inMode(shared, "x"), inMode(permits, "x")} {
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("Acquire in mode %v, fair: %v: %v; want ErrUnsupported", req.Mode, req.Fair, err)
		}
	}
	grant := mustAcquire(t, store, inMode(driver.Mode{}, "x"))
	if err := store.(driver.Downgrader).Downgrade(t.Context(), grant); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Downgrade: %v; want ErrUnsupported", err)
	}
	for _, opt := range []dlock.Option{dlock.WithFair(), dlock.WithShared(), dlock.WithLimit(2)} {
		if _, err := client.TryLock(t.Context(), "y", opt); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("TryLock: %v; want ErrUnsupported", err)
		}
	}
}
