package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// openDB opens the database for statements of the test's own: it waits for
// locks, which a store does itself.
func openDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	return open(t, strings.Replace(sqllock.SQLiteDSN(path), "busy_timeout(5)", "busy_timeout(10000)", 1))
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

func newStore(t testing.TB, db *sql.DB) *sqllock.Store {
	t.Helper()
	store, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

func openStore(t testing.TB, path string) *sqllock.Store {
	t.Helper()
	return newStore(t, open(t, sqllock.SQLiteDSN(path)))
}

func tempFile(t testing.TB) string { return filepath.Join(t.TempDir(), "locks.db") }

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: 30 * time.Second,
		Holder: driver.Holder{Host: "here", PID: 7, Program: "test", Note: name}}
}

func mustAcquire(t testing.TB, store driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(context.Background(), req)
	if err != nil {
		t.Fatalf("acquire %q: %v", req.Name, err)
	}
	return grant
}

func mustRelease(t testing.TB, store driver.Store, grant driver.Grant) {
	t.Helper()
	if err := store.Release(context.Background(), grant); err != nil {
		t.Fatalf("release %q: %v", grant.Name, err)
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	a, b := openStore(t, path), openStore(t, path)
	ctx := t.Context()

	req := request("orders/42")
	grant := mustAcquire(t, a, req)
	if grant.Token != 1 {
		t.Errorf("the first token is %d, want 1", grant.Token)
	}
	if again := mustAcquire(t, b, req); again.Token != grant.Token {
		t.Errorf("the same owner got token %d, had %d", again.Token, grant.Token)
	}

	_, err := b.Acquire(ctx, request("orders/42"))
	var held *driver.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("a second owner: %v, want a HeldError", err)
	}
	if held.Token != grant.Token || held.Holder != req.Holder || held.Remaining <= 10*time.Second || held.Remaining > 31*time.Second {
		t.Errorf("HeldError does not describe the holder: %+v", held)
	}

	stranger := grant
	stranger.Owner = driver.NewOwner()
	errs := b.Renew(ctx, []driver.Grant{grant, stranger})
	if len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], driver.ErrNotHeld) {
		t.Errorf("renewing ours and a stranger's: %v, want nil and ErrNotHeld", errs)
	}
	if errs := b.Renew(ctx, []driver.Grant{grant}); errs != nil {
		t.Errorf("renew: %v", errs)
	}
	if err := b.Release(ctx, stranger); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release by a stranger: %v, want ErrNotHeld", err)
	}
	mustRelease(t, b, grant)
	if err := a.Release(ctx, grant); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("second release: %v, want ErrNotHeld", err)
	}
	next, step := mustAcquire(t, a, request("orders/42")), a.Traits().TokenStep
	if next.Token != grant.Token+step {
		t.Errorf("the next token is %d, want %d", next.Token, grant.Token+step)
	}
	if err := b.Break(ctx, "orders/42", grant.Token); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("break with an old token: %v, want ErrNotHeld", err)
	}
	if err := b.Break(ctx, "orders/42", next.Token); err != nil {
		t.Errorf("break: %v", err)
	}
	if third := mustAcquire(t, b, request("orders/42")); third.Token != next.Token+step {
		t.Errorf("the token after a break is %d, want %d", third.Token, next.Token+step)
	}
}

func TestWatchWakes(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	a, b := openStore(t, path), openStore(t, path)
	for _, test := range []struct {
		name string
		free func(driver.Grant) error
		ttl  time.Duration
	}{
		{"release by the same store", func(g driver.Grant) error { return b.Release(context.Background(), g) }, time.Minute},
		{"release by another store", func(g driver.Grant) error { return a.Release(context.Background(), g) }, time.Minute},
		{"break by another store", func(g driver.Grant) error { return a.Break(context.Background(), g.Name, g.Token) }, time.Minute},
		{"expiry", func(driver.Grant) error { return nil }, 150 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			req := request(t.Name())
			req.TTL = test.ttl
			grant := mustAcquire(t, a, req)
			waiter := request(t.Name())
			woken, stop := watch(t, b, waiter)
			defer stop()
			if err := test.free(grant); err != nil {
				t.Fatal(err)
			}
			await.Event(t, woken, "wake-up")
			mustAcquire(t, b, waiter)
		})
	}
}
