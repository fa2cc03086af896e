package sqlsession_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	if err := store.Downgrade(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
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
	check := func(name string, shared bool) {
		t.Helper()
		if held := mustBeHeld(t, other, request(name)); held.Mode.Shared != shared {
			t.Errorf("%q is refused with %+v; want shared: %v", name, held, shared)
		}
	}
	check("x", false)
	if err := store.Downgrade(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	check("x", true)
	check("y", false)
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

// TestWriterAmongSharedLocks: an exclusive lock is granted while readers of two programs hold the
// lock all the time.
func TestWriterAmongSharedLocks(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	ctx, stop := context.WithTimeout(t.Context(), await.Limit)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	var reading atomic.Int64
	for range 2 {
		client := dlock.New(s.store(t, s.open(t)), nil)
		defer client.Close()
		for range 2 {
			readers.Go(func() {
				for ctx.Err() == nil {
					err := client.Do(ctx, "x", func(ctx context.Context) error {
						reading.Add(1)
						defer reading.Add(-1)
						<-time.After(20 * time.Millisecond) // the readers overlap
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
	writer := dlock.New(s.store(t, s.open(t)), nil)
	defer writer.Close()
	for range 5 {
		lease, err := writer.Lock(ctx, "x")
		if err != nil {
			t.Fatalf("the exclusive lock: %v", err)
		}
		if n := reading.Load(); n > 0 {
			t.Errorf("%d readers beside an exclusive holder", n)
		}
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	stop()
	readers.Wait()
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
