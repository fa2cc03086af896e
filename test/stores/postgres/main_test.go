// Package postgres tests sqllock on PostgreSQL, also through PgBouncer.
package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const now = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`

var database = &sqlrig.Database{
	Kind:             servers.Postgres,
	Args:             []string{"-c", "max_connections=400"},
	Pair:             servers.RunPostgresPair,
	Dialect:          sqllock.Postgres,
	Open:             open,
	Held:             `SELECT name FROM dlock_locks WHERE owner IS NOT NULL AND expires > ` + now,
	Queued:           `SELECT name FROM dlock_queue WHERE expires > ` + now,
	Free:             `UPDATE dlock_locks SET owner = NULL WHERE name = $1`,
	CountConnections: connections,
	Statements:       statements,
	Blocked:          `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`,
	Kill:             kill,
	CreateUser: func(ctx context.Context, admin *sql.DB, user, password string) error {
		_, err := admin.ExecContext(ctx, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, user, password))
		return err
	},
	Grant: func(ctx context.Context, admin *sql.DB, user, rights string) error {
		_, err := admin.ExecContext(ctx, fmt.Sprintf(`GRANT %s ON ALL TABLES IN SCHEMA public TO %s`, rights, user))
		return err
	},
	Impatient: "idle_session_timeout=1000",
	Isolations: []string{
		"default_transaction_isolation=serializable&deadlock_timeout=1", "default_transaction_isolation=repeatable%20read", "",
	},
}

func TestMain(m *testing.M) { database.Main(m) }

func open(at *url.URL) (*sql.DB, error) {
	config, err := pgx.ParseConfig(at.String())
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config), nil
}

func connections(ctx context.Context, admin *sql.DB, user string) (n int, err error) {
	err = admin.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, user).Scan(&n)
	return n, err
}

// statements counts transactions, which is what statements outside of one are.
func statements(ctx context.Context, admin *sql.DB) (n int64, err error) {
	err = admin.QueryRowContext(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

// kill tries again: behind PgBouncer its own connection may be one that it has
// just killed.
func kill(ctx context.Context, admin *sql.DB) (err error) {
	for range 3 {
		if _, err = admin.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err == nil {
			return nil
		}
	}
	return err
}
