package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
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
	server, raw := run(t)
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

// TestLockLastsAsLongAsItsLongestShare: programs that see only the lock's own key, as Java does,
// wait for a dead reader no longer than its TTL.
func TestLockLastsAsLongAsItsLongestShare(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
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
		must(t, raw.PExpire(t.Context(), name, long.TTL+500*time.Millisecond).Err())
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
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	grant := mustAcquire(t, store, inMode(driver.Mode{}, "x"))
	must(t, raw.PExpire(t.Context(), "x", 10*time.Second).Err())
	must(t, store.(driver.Downgrader).Downgrade(t.Context(), grant))
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
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	for _, mode := range []string{"read", "write", "7", "dark"} {
		must(t, raw.HSet(t.Context(), mode, "mode", mode, "volume", 1, "name", "x").Err())
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
	server, raw := run(t)
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
