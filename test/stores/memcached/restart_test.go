package memcached

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRestartedServerWaitsForOldHolders: a restarted server has forgotten all locks. It grants none
// before the leases from before the restart have ended, and the next token is larger.
func TestRestartedServerWaitsForOldHolders(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	open := func() *dlock.Client {
		store, err := memcachelock.New(server.Addr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := dlock.New(store, nil)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), store.Close()); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	holder, other := open(), open()
	const ttl = 2 * time.Second
	ctx := bounded(t)
	lease, err := holder.Lock(ctx, "a", dlock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock(ctx, "a", dlock.WithTTL(ttl)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock just after the restart: %v; want ErrHeld", err)
	}
	next, err := other.Lock(ctx, "a", dlock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	if lease.Context().Err() == nil {
		t.Error("the lock has two holders")
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if err := lease.Unlock(ctx); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock of a lost lock: %v; want ErrNotHeld", err)
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestFastRestartGrantsNothingEarly: however soon the server is back, it grants no lock before the
// lease from before the restart has ended, and tokens rise also with the shortest TTL.
func TestFastRestartGrantsNothingEarly(t *testing.T) {
	t.Parallel()
	restarted := func(t *testing.T, ttl time.Duration, times int) {
		t.Helper()
		server := servers.Run(t, servers.Memcached)
		lock := func(opts *memcachelock.Options) *dlock.Lease {
			t.Helper()
			store, err := memcachelock.New(server.Addr(), opts)
			if err != nil {
				t.Fatal(err)
			}
			client := dlock.New(store, nil)
			t.Cleanup(func() { _ = errors.Join(client.Close(), store.Close()) })
			lease, err := client.Lock(bounded(t), "a", dlock.WithFixedTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		for before := lock(&memcachelock.Options{RestartDelay: time.Second}); times > 0; times-- {
			if err := errors.Join(server.Kill(), server.Restart()); err != nil {
				t.Fatal(err)
			}
			after := lock(nil)
			if before.Context().Err() == nil {
				t.Error("the lock has two holders")
			}
			if after.Token() <= before.Token() {
				t.Errorf("token %d after %d", after.Token(), before.Token())
			}
			before = after
		}
	}
	t.Run("one holder", func(t *testing.T) {
		t.Parallel()
		restarted(t, 3*time.Second, 1)
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		restarted(t, time.Second, 2)
	})
}

// TestReusedNumberTouchesNoOtherLock: after a restart the lock of another owner may have the number
// that the lock of the first owner had. A release by the first owner does not touch it.
func TestReusedNumberTouchesNoOtherLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	store, err := open(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	acquire := func() driver.Grant {
		t.Helper()
		for range 100 { // the first call notices that the connection is gone
			grant, err := store.Acquire(t.Context(), driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute})
			if err == nil {
				return grant
			}
			if !errors.Is(err, driver.ErrUnreachable) {
				t.Fatal(err)
			}
		}
		t.Fatal("the server does not come back")
		return driver.Grant{}
	}
	before := acquire()
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	after := acquire() // the first number, as before
	if err := store.Release(t.Context(), before); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of a lock from before the restart: %v; want ErrNotHeld", err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{before}); errs == nil || !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Errorf("Renew of a lock from before the restart: %v; want ErrNotHeld", errs)
	}
	if err := store.Release(t.Context(), after); err != nil {
		t.Errorf("Release of the lock that is held: %v", err)
	}
}
