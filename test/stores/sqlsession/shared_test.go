package sqlsession_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
)

func sharedRequest(name string) driver.Request {
	req := request(name)
	req.Mode.Shared = true
	return req
}

func mustBeHeld(t testing.TB, store driver.Store, req driver.Request) *driver.HeldError {
	t.Helper()
	_, err := store.Acquire(t.Context(), req)
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		t.Fatalf("Acquire of %q: want a HeldError, got: %v", req.Name, err)
	}
	return held
}

// TestSharedLocksOfOneConnection: a connection excludes no lock of its own, so the store decides
// among its owners. Each release frees one share, for other stores too.
func TestSharedLocksOfOneConnection(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	store, other := s.store(t, s.open(t)), s.store(t, s.open(t))
	first, second := mustAcquire(t, store, sharedRequest("x")), mustAcquire(t, store, sharedRequest("x"))
	for _, grant := range []driver.Grant{first, second} {
		for _, contender := range []driver.Store{store, other} {
			if held := mustBeHeld(t, contender, request("x")); !held.Mode.Shared {
				t.Errorf("a shared lock refuses an exclusive one with %+v", held)
			}
		}
		mustRelease(t, store, grant)
	}
	grant := mustAcquire(t, store, request("x"))
	mustBeHeld(t, store, sharedRequest("x"))
	mustBeHeld(t, other, sharedRequest("x"))
	check(t, store.Downgrade(t.Context(), grant))
	reader := mustAcquire(t, store, sharedRequest("x"))
	mustRelease(t, store, grant)
	mustBeHeld(t, other, request("x"))
	mustRelease(t, store, reader)
	mustRelease(t, other, mustAcquire(t, other, request("x")))
}

// TestRefusalTellsWhetherTheLockIsShared: also if the first shared lock of the session was downgraded, and
// if the session that refuses has shared locks of other names.
func TestRefusalTellsWhetherTheLockIsShared(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	store, other := s.store(t, s.open(t)), s.store(t, s.open(t))
	grant := mustAcquire(t, store, request("x"))
	mustAcquire(t, store, request("y"))
	refused := func(name string, shared bool) {
		t.Helper()
		if held := mustBeHeld(t, other, request(name)); held.Mode.Shared != shared {
			t.Errorf("%q is refused with %+v; want shared: %v", name, held, shared)
		}
	}
	refused("x", false)
	check(t, store.Downgrade(t.Context(), grant))
	refused("x", true)
	refused("y", false)
	mustAcquire(t, other, sharedRequest("x")) // nobody waits for the lock of sessions with shared locks
}

// TestSharedLocksEndWithTheConnection: the shared locks of a store and the places of its exclusive
// waiters end with its connection.
func TestSharedLocksEndWithTheConnection(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	store := s.store(t, s.open(t))
	var losses atomic.Int64
	for _, name := range []string{"x", "x", "y"} {
		req := sharedRequest(name)
		req.Lost = func() { losses.Add(1) }
		mustAcquire(t, store, req)
	}
	writer := request("y")
	writer.Queue = true
	mustBeHeld(t, store, writer)
	s.killOthers(t, s.open(t))
	other := s.store(t, s.open(t))
	mustRelease(t, other, mustAcquire(t, other, request("x")))
	mustRelease(t, other, mustAcquire(t, other, sharedRequest("y"))) // no place is left
	await.Until(t, "the loss of three shared locks is reported", func() bool { return losses.Load() == 3 })
}

// TestModesThatAreNotOffered: only session on PostgreSQL has shared locks, and no scheme has permits.
func TestModesThatAreNotOffered(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		client := dlock.New(s.store(t, s.open(t)), nil)
		defer client.Close()
		if _, err := client.TryLock(t.Context(), "x", dlock.WithLimit(2)); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("a permit: want ErrUnsupported, got: %v", err)
		}
		offered := s.dialect == sqlsession.Postgres && s.scheme == sqlsession.Session
		lease, err := client.TryLock(t.Context(), "x", dlock.WithShared())
		switch {
		case offered && err == nil:
			err = lease.Unlock(t.Context())
		case !offered && errors.Is(err, dlock.ErrUnsupported):
			err = nil
		}
		if err != nil {
			t.Errorf("a shared lock: %v", err)
		}
	})
}
