package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"regexp"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
)

// limit bounds the wait for what takes milliseconds on a machine that is not busy.
const limit = await.Limit

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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

// within is the context of a test, with a limit for what takes milliseconds.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("it took too long"))
	t.Cleanup(cancel)
	return ctx
}

func unique(prefix string) string { return fmt.Sprint(prefix, count.Add(1)) }

// run executes statements of an administrator.
func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// number returns the result of a query that counts.
func number(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	check(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// column returns the only column of a query.
func column[T any](ctx context.Context, db *sql.DB, query string) (values []T, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var value T
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, rows.Err()
}

// request returns a request of a new owner.
func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: 10 * limit,
		Holder: driver.Holder{Host: "here", PID: 7, Program: "test", Note: name}}
}

// fairRequest returns a request of a new owner that queues.
func fairRequest(name string) driver.Request {
	req := request(name)
	req.Fair, req.Queue = true, true
	return req
}

// acquire acquires locks that must be free.
func acquire(t testing.TB, store driver.Store, names ...string) (grants []driver.Grant) {
	t.Helper()
	for _, name := range names {
		grant, err := store.Acquire(within(t), request(name))
		if err != nil {
			t.Fatalf("Acquire(%q): %v", name, err)
		}
		grants = append(grants, grant)
	}
	return grants
}

// release releases locks that must be held.
func release(t testing.TB, store driver.Store, grants ...driver.Grant) {
	t.Helper()
	for _, grant := range grants {
		if err := store.Release(within(t), grant); err != nil {
			t.Fatalf("Release(%q): %v", grant.Name, err)
		}
	}
}

// mustRenew renews locks that must be held.
func mustRenew(t testing.TB, store driver.Store, grants ...driver.Grant) {
	t.Helper()
	if errs := store.Renew(within(t), grants); errs != nil {
		t.Errorf("Renew: %v", errors.Join(errs...))
	}
}

// undo releases what an attempt may have left.
func undo(t testing.TB, store driver.Store, req driver.Request) {
	t.Helper()
	err := store.Release(within(t), driver.Grant{Name: req.Name, Owner: req.Owner})
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of an attempt for %q: %v", req.Name, err)
	}
}

// mustBeHeld makes an attempt for a lock that another owner holds.
func mustBeHeld(t testing.TB, store driver.Store, req driver.Request) {
	t.Helper()
	if _, err := store.Acquire(within(t), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire(%q) of a held lock: %v; want ErrHeld", req.Name, err)
	}
}

// isCommit finds the end of a transaction, as every driver writes it.
var isCommit = regexp.MustCompile(`(?i)\bcommit\b`).Match
