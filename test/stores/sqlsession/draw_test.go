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

// TestAcquireWithoutToken: if the server takes the lock but has no token for it, the lock is
// released, and other locks on the connection stay.
func TestAcquireWithoutToken(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	kept := mustAcquire(t, store, request("other"))
	order(t, admin, "ALTER SEQUENCE dlock_fence RENAME TO elsewhere")
	if _, err := store.Acquire(t.Context(), request("x")); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire while there are no tokens: %v", err)
	}
	order(t, admin, "ALTER SEQUENCE elsewhere RENAME TO dlock_fence")
	s.becomesFree(t)
	mustRenew(t, store, kept)
}

// stalled blocks the drawing of tokens until the test calls resume.
func stalled(t *testing.T, admin *sql.DB) (resume func()) {
	t.Helper()
	tx, err := admin.BeginTx(t.Context(), nil)
	check(t, err)
	order(t, tx, "ALTER SEQUENCE dlock_fence RENAME TO elsewhere")
	return func() {
		t.Helper()
		check(t, tx.Rollback())
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
	mayGet(t, elsewhere, request("x"), "the lock is free")
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
		check(t, admin.QueryRowContext(t.Context(), s.holding).Scan(&n))
		if n != 0 {
			t.Fatalf("%d locks are held on the server after everything was released", n)
		}
	}
}
