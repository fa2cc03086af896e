package sqlbound

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// sessionOnPostgres is the one store of which tests can keep a token from being drawn.
func sessionOnPostgres(t *testing.T) setup {
	t.Helper()
	for _, d := range databases {
		if d.dialect == sqllock.Postgres {
			return d.among(t, sqllock.Session)
		}
	}
	t.Fatal("no PostgreSQL")
	return setup{}
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

// TestPassWithoutToken: a lock that cannot be passed on, because the server has no
// token for it, is given back, and other locks on the connection stay.
func TestPassWithoutToken(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	lost := make(chan struct{}, 1)
	other := request("other")
	other.Lost = func() { lost <- struct{}{} }
	kept := mustAcquire(t, store, other)
	client := dlock.New(store, nil)
	defer client.Close()
	lease, err := client.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		lease, err := client.Lock(t.Context(), "x")
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		next <- err
	}()
	time.Sleep(5 * time.Millisecond) // it waits for the door, within the turn
	order(t, admin, "ALTER SEQUENCE dlock_fence RENAME TO elsewhere")
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	order(t, admin, "ALTER SEQUENCE elsewhere RENAME TO dlock_fence")
	if err := <-next; err != nil && !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("the next one: %v", err)
	}
	select {
	case <-lost:
		t.Error("another lock of the store was lost")
	default:
	}
	if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil {
		t.Errorf("Renew of another lock: %v", errs[0])
	}
}

// TestPassRefused is the same for the store alone.
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

// TestPassNobodyWaitsFor: a lock whose passing on took longer than anybody waits for
// it is not left to somebody who does not know.
func TestPassNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store, admin := s.store(t, s.open(t)), s.open(t)
	grant := mustAcquire(t, store, request("x"))
	tx, err := admin.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	order(t, tx, "ALTER SEQUENCE dlock_fence RENAME TO elsewhere") // nobody draws meanwhile
	next := request("x")
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := store.Pass(short(), grant, next); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Pass while no token can be drawn: %v", err)
	}
	// What a client does about a step of unknown outcome.
	t.Logf("Release by the one before: %v", store.Release(short(), grant))
	t.Logf("Release by the next one: %v", store.Release(short(), driver.Grant{Name: "x", Owner: next.Owner}))
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	elsewhere := s.store(t, s.open(t))
	until(t, 5*time.Second, "the lock is free", func() bool {
		_, err := elsewhere.Acquire(t.Context(), request("x"))
		return err == nil
	})
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
