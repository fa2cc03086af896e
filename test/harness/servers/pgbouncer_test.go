package servers

import (
	"context"
	"database/sql"
	"strings"
	"testing"
)

func TestPgBouncerSwapsConnections(t *testing.T) {
	t.Parallel()
	postgres := Run(t, Postgres)
	pool := Run(t, PgBouncer(postgres, 2))
	db := connect(t, pool.URL()+"&default_query_exec_mode=exec")

	// Three clients are connected. Two of them can have a transaction.
	var clients [3]*sql.Conn
	for i := range clients {
		clients[i] = one(t, db)
	}
	first := begin(t, clients[0])
	before := backend(t, first)
	if again := backend(t, first); again != before {
		t.Errorf("one transaction is on backends %d and %d", before, again)
	}
	second := begin(t, clients[1])
	if other := backend(t, second); other == before {
		t.Error("two transactions share a backend")
	}
	try(t, first.Commit)
	if got := backend(t, begin(t, clients[2])); got != before {
		t.Errorf("another client is on backend %d, want %d, which is free", got, before)
	}
	try(t, second.Commit)
	if after := backend(t, begin(t, clients[0])); after == before {
		t.Errorf("the first client is on backend %d again, which another client has", after)
	}
	if got := sqlOf(t, postgres, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"); got != "2" {
		t.Errorf("%s backends for a pool of two", got)
	}
}

func TestPgBouncerLifecycle(t *testing.T) {
	t.Parallel()
	postgres := Run(t, Postgres)
	sqlOf(t, postgres, "CREATE TABLE kept (id INT); CREATE USER little; GRANT SELECT ON kept TO little")
	pool := Run(t, PgBouncer(postgres, 1))
	rows(t, pool, "0")
	little := connect(t, pool.URLAs("little", "")+"&default_query_exec_mode=exec")
	if _, err := little.ExecContext(t.Context(), "INSERT INTO kept VALUES (1)"); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("a user of the server through the pool: %v, want that it is denied", err)
	}

	addr := pool.Addr()
	try(t, pool.Kill)
	if err := pool.kind.probe(t.Context(), addr); err == nil {
		t.Error("the pool answers after Kill")
	}
	try(t, pool.Restart)
	rows(t, pool, "0")
	try(t, postgres.Kill)
	try(t, postgres.Restart)
	if err := until(limit(t), "the pool has found the server again", func(ctx context.Context) error {
		_, err := pool.SQL(ctx, "SELECT count(*) FROM kept")
		return err
	}); err != nil {
		t.Error(err)
	}
	try(t, pool.Stop)
	gone(t, pool.Dir())
}

func one(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func begin(t *testing.T, conn *sql.Conn) *sql.Tx {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func backend(t *testing.T, tx *sql.Tx) (pid int) {
	t.Helper()
	if err := tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}
