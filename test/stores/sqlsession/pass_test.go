package sqlsession_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
)

// sessionOnPostgres is the one setup in which a test can block the drawing of tokens.
func sessionOnPostgres(t *testing.T) setup {
	t.Helper()
	return onPostgres(t, sqlsession.Session)
}

// order runs a statement.
func order(t *testing.T, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string) {
	t.Helper()
	if _, err := on.ExecContext(context.Background(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// TestPassRefused: if the server has no token for a hand-over, the lock is held as before, and
// other locks on the connection stay.
func TestPassRefused(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	other := request("other")
	kept := mustAcquire(t, store, other)
	grant := mustAcquire(t, store, request("x"))
	order(t, admin, "ALTER SEQUENCE dlock_fence RENAME TO elsewhere")
	_, err := store.Pass(t.Context(), grant, request("x"))
	if err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Pass of a lock that is held: %v", err)
	}
	mustRelease(t, store, grant)
	if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil {
		t.Errorf("Renew of another lock: %v", errs[0])
	}
}

// stalled blocks the drawing of tokens until the test calls resume.
func stalled(t *testing.T, admin *sql.DB) (resume func()) {
	t.Helper()
	tx, err := admin.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	order(t, tx, "ALTER SEQUENCE dlock_fence RENAME TO elsewhere")
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// briefly returns a context that ends soon.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// becomesFree fails unless another store can acquire the lock long before its TTL has passed.
func (s setup) becomesFree(t *testing.T) {
	t.Helper()
	elsewhere := s.store(t, s.open(t))
	until(t, 5*time.Second, "the lock is free", func() bool {
		_, err := elsewhere.Acquire(t.Context(), request("x"))
		return err == nil
	})
}

// TestPassAfterCallerLeft: if the caller left before the hand-over, the lock does not go to
// the next owner, which would not know of it.
func TestPassAfterCallerLeft(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	grant := mustAcquire(t, store, request("x"))
	resume := stalled(t, admin)
	next := request("x")
	if _, err := store.Pass(briefly(t), grant, next); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Pass while no token can be drawn: %v", err)
	}
	// A client does this after a step of unknown outcome.
	t.Logf("Release by the owner before: %v", store.Release(briefly(t), grant))
	t.Logf("Release by the next owner: %v", store.Release(briefly(t), driver.Grant{Name: "x", Owner: next.Owner}))
	resume()
	s.becomesFree(t)
}

// TestAcquireAfterCallerLeft: if the caller left before the grant, the lock becomes free.
func TestAcquireAfterCallerLeft(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	mustRelease(t, store, mustAcquire(t, store, request("x"))) // now it is connected
	resume := stalled(t, admin)
	req := request("x")
	if _, err := store.Acquire(briefly(t), req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire while no token can be drawn: %v", err)
	}
	t.Logf("Release of what may have been acquired: %v", store.Release(briefly(t), driver.Grant{Name: "x", Owner: req.Owner}))
	resume()
	s.becomesFree(t)
}

// TestAcquireAgainWhileReleasing: an owner that acquires again while its lock is released
// does not take it twice on the server.
func TestAcquireAgainWhileReleasing(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		req := request("x")
		mustAcquire(t, store, req)
		release := func() { _ = store.Release(t.Context(), driver.Grant{Name: "x", Owner: req.Owner}) }
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, _ = store.Acquire(t.Context(), req) })
			all.Go(release)
		}
		all.Wait()
		release()
		var n int
		if err := admin.QueryRowContext(t.Context(), s.holding).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n != 0 {
			t.Fatalf("%d locks are held on the server after everything was released", n)
		}
	}
}
