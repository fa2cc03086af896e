package sqlsession_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// pgxPool is a pool of pgx, and database/sql over it.
func (s setup) pgxPool(t *testing.T, addr string) (*pgxpool.Pool, *sql.DB) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.dsn(addr, s.name))
	check(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return pool, db
}

// TestPgxPool: a connection that was given up does not go back to a pool of pgx with the
// locks on it.
func TestPgxPool(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	p := proxy.Run(t, s.server.Addr())
	_, db := s.pgxPool(t, p.Addr())
	store := s.store(t, db)
	req, lost := losable("x")
	mustAcquire(t, store, req)
	// An attempt is not interrupted, which would close the connection.
	cut, cancel := context.WithCancel(t.Context())
	p.OnRequest(s.attempts, func(*proxy.Conn) {
		p.Hold(proxy.Replies)
		cancel()
	})
	if _, err := store.Acquire(cut, request("y")); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire over a silent connection: %v", err)
	}
	select {
	case <-lost:
	case <-time.After(await.Limit):
		t.Error("the connection is silent and counts as alive")
	}
	p.Deliver()
	s.becomesFree(t)
}

// TestPgxPoolListener: a connection on which a store listened does not go back listening.
func TestPgxPoolListener(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	pool, db := s.pgxPool(t, s.server.Addr())
	admin := s.open(t)
	store, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: sqllock.Postgres})
	check(t, err)
	holder := request("x")
	mustAcquire(t, store, holder)
	stop, err := store.Watch(t.Context(), request("x"), func() {})
	check(t, err)
	await.Until(t, "the store listens", func() bool { return s.listeners(t, admin) > 0 })
	stop()
	if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: holder.Owner}); err != nil {
		t.Error(err)
	}
	check(t, store.Close())
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		var channels int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_listening_channels()").Scan(&channels); err != nil {
			t.Error(err)
		}
		if channels > 0 {
			t.Error("a connection went back to the pool listening")
		}
		conn.Release()
	}
}

// listeners counts the sessions whose last statement was to listen.
func (s setup) listeners(t *testing.T, admin *sql.DB) (n int) {
	t.Helper()
	const text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
	check(t, admin.QueryRowContext(context.Background(), text).Scan(&n))
	return n
}
