package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a statement of the test's own.
func run(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string, args ...any) {
	t.Helper()
	if _, err := on.ExecContext(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func closeAfter(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// openOwn opens a store with a database of its own, and a client of it.
func openOwn(t testing.TB, path string, opts *dlock.Options) (fileStore, *dlock.Client) {
	t.Helper()
	store, err := openFile(t.Context(), path)
	check(t, err)
	closeAfter(t, store)
	client := dlock.New(store, opts)
	closeAfter(t, client)
	return store.(fileStore), client
}

// openDB opens the database for statements of the test's own: it waits for
// locks, which a store does itself.
func openDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	return open(t, strings.Replace(sqllock.SQLiteDSN(path), "busy_timeout(5)", "busy_timeout(10000)", 1))
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	check(t, err)
	closeAfter(t, db)
	return db
}

func newStore(t testing.TB, db *sql.DB) *sqllock.Store {
	t.Helper()
	store, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: sqllock.SQLite})
	check(t, err)
	t.Cleanup(func() {
		if err := errors.Join(store.Close(), db.Ping()); err != nil { // which is not the store's
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

// mustRenew renews locks that must be held.
func mustRenew(t testing.TB, store driver.Store, grants ...driver.Grant) {
	t.Helper()
	if errs := store.Renew(context.Background(), grants); errs != nil {
		t.Errorf("Renew: %v", errors.Join(errs...))
	}
}
