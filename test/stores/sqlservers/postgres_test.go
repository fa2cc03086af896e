package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const postgresNow = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`

var postgres = &database{
	kind:    servers.Postgres,
	args:    []string{"-c", "max_connections=400"},
	pair:    servers.RunPostgresPair,
	dialect: sqllock.Postgres,
	pool: func(at *url.URL) (*sql.DB, error) {
		config, err := pgx.ParseConfig(at.String())
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*config), nil
	},
	held:    `SELECT name FROM dlock_locks WHERE owner IS NOT NULL AND expires > ` + postgresNow,
	queued:  `SELECT name FROM dlock_queue WHERE expires > ` + postgresNow,
	blocked: `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`,
	// Transactions, which is what statements outside of one are.
	statements: `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`,
	free:       `UPDATE dlock_locks SET owner = NULL WHERE name = $1`,
	connections: func(user string) string {
		return `SELECT count(*) FROM pg_stat_activity WHERE usename = '` + user + `'`
	},
	createUser: func(user, password string) string {
		return "CREATE ROLE " + user + " LOGIN PASSWORD '" + password + "'"
	},
	grant: func(rights, _, user string) string {
		return "GRANT " + rights + " ON ALL TABLES IN SCHEMA public TO " + user
	},
	grantAll: func(_, user string) string { return "GRANT ALL ON SCHEMA public TO " + user },
	kill: func(ctx context.Context, admin *sql.DB) (err error) {
		for range 3 { // behind PgBouncer its own connection may be one that it has just killed
			if _, err = admin.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err == nil {
				return nil
			}
		}
		return err
	},
	everywhere: []string{"-k", ".", "-h", "127.0.0.1,::1"},
	socket: func(s target, server *servers.Server, port string) string {
		s = s.at("").with("host="+filepath.Join(server.Dir(), "data"), "port="+port)
		return strings.Replace(s.url, "postgres://", "postgresql://", 1)
	},
	askForPasswords:  askForPasswords,
	shortIdleTimeout: "idle_session_timeout=1000",
	isolations:       []string{"default_transaction_isolation=serializable&deadlock_timeout=1", "default_transaction_isolation=repeatable%20read", ""},
	settings: []string{
		"default_query_exec_mode=cache_statement", "default_query_exec_mode=cache_describe", "default_query_exec_mode=describe_exec",
		"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol", "timezone=Asia/Tokyo", "client_encoding=UTF8",
		"statement_timeout=10000", "standard_conforming_strings=on",
	},
	waiterRate:    10,
	wrongPassword: "password authentication failed", noDatabase: "does not exist", denied: "permission denied",
	rejected: func(s target) map[string]command.Result {
		return map[string]command.Result{
			"postgres://127.0.0.1":        {Status: 64, Stderr: "database is missing"},
			s.with("sslmode=xyz").url:     {Status: 64, Stderr: "sslmode"},
			s.as("nobody", canary).url:    {Status: 77, Stderr: "does not exist"},
			s.with("sslmode=require").url: {Status: 78, Stderr: "server refused TLS connection"},
		}
	},
}

// askForPasswords makes a server ask every user but its superuser for a password.
func askForPasswords(t *testing.T, s target, server *servers.Server) {
	t.Helper()
	const rules = "local all postgres trust\nhost all postgres all trust\nlocal all all scram-sha-256\nhost all all all scram-sha-256\n"
	check(t, os.WriteFile(filepath.Join(server.Dir(), "data", "pg_hba.conf"), []byte(rules), 0o644))
	run(t, s.admin(t), "SELECT pg_reload_conf()")
	nobody := s.as("nobody", "x").admin(t)
	await.Until(t, "the server asks for passwords", func() bool {
		err := nobody.PingContext(t.Context())
		return err != nil && strings.Contains(err.Error(), s.wrongPassword)
	})
}

// TestUnfitEncoding: to a program with another encoding a name that is not ASCII would be another row.
func TestUnfitEncoding(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		postgres.eachScheme(t, func(t *testing.T, s target) {
			s.with("client_encoding=LATIN1").mustBeRejected(t, "client_encoding is LATIN1")
		})
	})
}

// TestEncodings: in a database of another encoding a name that it lacks is refused, and any other can be
// renewed, also together with the locks of other names.
func TestEncodings(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		server := servers.Run(t, servers.Postgres)
		admin, err := sql.Open("pgx", server.URL())
		check(t, err)
		closeAfter(t, admin)
		for encoding, names := range map[string]map[string]error{
			"SQL_ASCII": {"a\u2028": nil, `a\u2029`: nil, "é": nil},
			"LATIN1":    {"a\u2028": driver.ErrMisconfigured, "é": nil},
			"UTF8":      {"a\u2028": nil, "日本": nil},
		} {
			run(t, admin, "CREATE DATABASE "+encoding+" ENCODING '"+encoding+"' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
			store, err := sqllock.Open(t.Context(), strings.Replace(server.URL(), "/postgres?", "/"+strings.ToLower(encoding)+"?", 1), nil)
			check(t, err)
			closeAfter(t, store)
			acquire := func(name string) (driver.Grant, error) {
				return store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
			}
			for name, want := range names {
				other, err := acquire("other")
				check(t, err)
				grant, err := acquire(name)
				if !errors.Is(err, want) {
					t.Errorf("%s: acquiring %q: %v; want %v", encoding, name, err, want)
				}
				grants := []driver.Grant{other}
				if err == nil {
					grants = append(grants, grant)
				}
				check(t, errors.Join(store.Renew(t.Context(), grants)...))
				for _, grant := range grants {
					check(t, store.Release(t.Context(), grant))
				}
			}
		}
	})
}

// pooled is a store behind PgBouncer in transaction mode, on a server of its own.
func pooled(t testing.TB, parameters ...string) target {
	t.Helper()
	server := servers.Run(t, servers.Postgres)
	bouncer := servers.Run(t, servers.PgBouncer(server, 4))
	parameters = append(parameters, "default_query_exec_mode=exec") // it knows no prepared statements
	return postgres.on(t, server, parameters...).at(bouncer.Addr())
}

// TestConformanceBehindPgBouncer runs the conformance kit before the tests that run at the
// same time.
func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		postgres.eachScheme(t, func(t *testing.T, s target) { pooled(t, "scheme="+s.scheme()).conform(t) })
	})
}

// TestPgBouncer: LISTEN has no meaning there, and waiters are woken all the same.
func TestPgBouncer(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		postgres.eachScheme(t, func(t *testing.T, s target) {
			s = pooled(t, "scheme="+s.scheme())
			s.wakeUp(t)
			s.oneConnection(t)
			runCommand(t, s)
		})
	})
}

// TestCommandBehindPgBouncer: locks that are connections are rejected, with the reason.
func TestCommandBehindPgBouncer(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		s := pooled(t)
		commandRejects(t, map[string]command.Result{
			s.with("scheme=session").url:   {Status: 78, Stderr: "PgBouncer"},
			s.with("scheme=forupdate").url: {Status: 78, Stderr: "PgBouncer"},
		})
	})
}

// TestReadOnlyTransactions: a store whose transactions are read-only is rejected.
func TestReadOnlyTransactions(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		postgres.eachScheme(t, func(t *testing.T, s target) {
			s.with("default_transaction_read_only=on").mustBeRejected(t, "read-only")
		})
	})
}
