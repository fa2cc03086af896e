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

// sessionOnPostgres is the one store of which tests can keep a token from being drawn.
func sessionOnPostgres(t *testing.T) setup {
	t.Helper()
	return onPostgres(t, sqlsession.Session)
}

// order runs a statement of the administrator.
func order(t *testing.T, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string) {
	t.Helper()
	if _, err := on.ExecContext(context.Background(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// TestPassRefused: a lock that cannot be passed on, because the server has no token for
// it, is held as before, and other locks on the connection stay.
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

// stalled keeps tokens from being drawn until the rest of the test calls resume.
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

// briefly is a context of somebody who does not wait for long.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// becomesFree demands that somebody else can have the lock, long before its TTL is over.
func (s setup) becomesFree(t *testing.T) {
	t.Helper()
	elsewhere := s.store(t, s.open(t))
	until(t, 5*time.Second, "the lock is free", func() bool {
		_, err := elsewhere.Acquire(t.Context(), request("x"))
		return err == nil
	})
}

// TestPassNobodyWaitsFor: a lock whose passing on took longer than anybody waits for
// it is not left to somebody who does not know.
func TestPassNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	grant := mustAcquire(t, store, request("x"))
	resume := stalled(t, admin)
	next := request("x")
	if _, err := store.Pass(briefly(t), grant, next); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Pass while no token can be drawn: %v", err)
	}
	// What a client does about a step of unknown outcome.
	t.Logf("Release by the one before: %v", store.Release(briefly(t), grant))
	t.Logf("Release by the next one: %v", store.Release(briefly(t), driver.Grant{Name: "x", Owner: next.Owner}))
	resume()
	s.becomesFree(t)
}

// TestAcquireNobodyWaitsFor is the same for a lock that was free.
func TestAcquireNobodyWaitsFor(t *testing.T) {
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

// TestAcquireAgainWhileReleasing: an owner that asks again for what is being released
// does not take it twice, of which the server would keep one.
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
