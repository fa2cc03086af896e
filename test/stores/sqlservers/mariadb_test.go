package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-sql-driver/mysql"
)

const (
	mariadbNow = `CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)`
	// emptyIsNull is a mode of MariaDB in which an empty text is NULL.
	emptyIsNull = "sql_mode=%27STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL%27"
)

var mariadb = &database{
	kind:    servers.MariaDB,
	args:    []string{"--max-connections=400"},
	pair:    servers.RunMariaDBPair,
	dialect: sqllock.MySQL,
	pool:    openMySQL,
	held:    `SELECT name FROM dlock_locks WHERE owner IS NOT NULL AND expires > ` + mariadbNow,
	queued:  `SELECT name FROM dlock_queue WHERE expires > ` + mariadbNow,
	// Not from innodb_trx, which answers the same when it is asked again too soon.
	blocked:    `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state IN ('Updating', 'Sending data') AND info LIKE '%UPDATE %'`,
	statements: `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'`,
	free:       `UPDATE dlock_locks SET owner = NULL WHERE name = ?`,
	connections: func(user string) string {
		return `SELECT COUNT(*) FROM information_schema.processlist WHERE user = '` + user + `'`
	},
	createUser: func(user, password string) string {
		return "CREATE USER " + user + "@'%' IDENTIFIED BY '" + password + "'"
	},
	grant: func(rights, database, user string) string {
		return "GRANT " + rights + " ON " + database + ".* TO " + user + "@'%'"
	},
	grantAll: func(database, user string) string { return "GRANT ALL ON " + database + ".* TO " + user + "@'%'" },
	kill: func(ctx context.Context, admin *sql.DB) error {
		ids, err := column[int64](ctx, admin, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
		for _, id := range ids {
			var gone *mysql.MySQLError
			const unknownThread = 1094
			if _, err := admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err != nil && !(errors.As(err, &gone) && gone.Number == unknownThread) {
				return err
			}
		}
		return err
	},
	everywhere: []string{"--bind-address=*"},
	socket: func(s target, server *servers.Server, _ string) string {
		s = s.at("").with("socket=" + url.QueryEscape(server.Dir()+"/sock"))
		return strings.Replace(s.url, "mysql://", "mariadb://", 1)
	},
	shortIdleTimeout: "wait_timeout=1",
	isolations:       []string{"tx_isolation=%27SERIALIZABLE%27&innodb_lock_wait_timeout=1", "tx_isolation=%27READ-UNCOMMITTED%27", ""},
	settings: []string{
		"clientFoundRows=true", "interpolateParams=true", "parseTime=true", "multiStatements=true", "columnsWithAlias=true",
		"collation=utf8mb4_unicode_ci", "charset=latin1", "sql_mode=%27ANSI%27", "sql_mode=%27ORACLE%27", "sql_mode=%27%27", "time_zone=%27-08:00%27",
		emptyIsNull,
	},
	waiterRate:    30,
	wrongPassword: "Access denied", noDatabase: "Unknown database", denied: "denied",
	rejected: func(s target) map[string]command.Result {
		return map[string]command.Result{
			"mysql://":                 {Status: 64, Stderr: "database is missing"},
			s.with("autocommit=0").url: {Status: 78, Stderr: "autocommit is off"},
			s.as("dlock", canary).url:  {Status: 77, Stderr: "wrong user or password"},
			s.with("tls=true").url:     {Status: 78, Stderr: "does not support TLS"},
		}
	},
}

func openMySQL(at *url.URL) (*sql.DB, error) {
	config, err := mysql.ParseDSN("/?" + strings.ReplaceAll(at.RawQuery, "/", "%2F"))
	if err != nil {
		return nil, err
	}
	config.User = at.User.Username()
	config.Passwd, _ = at.User.Password()
	config.Net, config.Addr, config.DBName = "tcp", at.Host, strings.TrimPrefix(at.Path, "/")
	config.Logger = &mysql.NopLogger{} // these tests make it complain
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// TestUnfitSettings: what the store cannot work with is rejected before a lock is granted.
func TestUnfitSettings(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		mariadb.eachScheme(t, func(t *testing.T, s target) {
			s.with("autocommit=0").mustBeRejected(t, "autocommit is off")
			s.with("completion_type=CHAIN").mustBeRejected(t, "completion_type is CHAIN")
			s.with("completion_type=2").mustBeRejected(t, "completion_type is RELEASE") // a word of SQL
			s.with("sql_safe_updates=1").mustBeRejected(t, "sql_safe_updates is on")
		})
	})
}

// TestSelectLimit: a connection on which queries answer with one row only loses no lock.
func TestSelectLimit(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		store := mariadb.target(t, "sql_select_limit=1").open(t)
		grants := acquire(t, store, "a", "b", "c")
		release(t, store, grants[0])
		errs := store.Renew(within(t), grants)
		if len(errs) != 3 || !errors.Is(errs[0], driver.ErrNotHeld) || errs[1] != nil || errs[2] != nil {
			t.Errorf("Renew of one lock that was released and two that are held: %v; want ErrNotHeld for the first only", errs)
		}
	})
}

// TestSettingsAreRestored: after a transaction the store restores the settings of the connection.
func TestSettingsAreRestored(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		db, opts, err := mariadb.target(t, "max_open=1", "idle_transaction_timeout=55",
			"idle_write_transaction_timeout=66", "idle_readonly_transaction_timeout=77").newPool()
		check(t, err)
		defer db.Close()
		type connection struct {
			id, any, write, read int
			isolation            string
		}
		readSettings := func() (c connection) {
			t.Helper()
			const settings = `SELECT CONNECTION_ID(), @@idle_transaction_timeout, @@idle_write_transaction_timeout,
	@@idle_readonly_transaction_timeout, @@tx_isolation`
			check(t, db.QueryRowContext(within(t), settings).Scan(&c.id, &c.any, &c.write, &c.read, &c.isolation))
			return c
		}
		before := readSettings()
		store, err := sqllock.New(t.Context(), db, opts)
		check(t, err)
		defer store.Close()
		both := []driver.Request{request("x"), request("y")}
		_, err = store.AcquireAll(within(t), both)
		check(t, err)
		if after := readSettings(); after != before {
			t.Errorf("after a transaction %+v, before it %+v", after, before)
		}
		both[0].Owner = driver.NewOwner()
		if _, err := store.AcquireAll(within(t), both); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("AcquireAll of what is held: %v; want ErrHeld", err)
		}
		if after := readSettings(); after != before {
			t.Errorf("after one that was rolled back %+v, before it %+v", after, before)
		}
	})
}

// The server may read a table of few rows as a whole. Then it would wait for rows that
// another transaction keeps locked.

func TestRenewalAmongFewRows(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		s := mariadb.target(t)
		store := s.open(t)
		grants := acquire(t, store, "kept", "locked")
		defer lockRows(t, s.admin(t), "dlock_locks", "locked")()
		mustRenew(t, store, grants[:1]...)
	})
}

func TestJanitorAmongFewRows(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		s := mariadb.target(t, emptyIsNull) // where the first name that is searched for is no empty one
		admin := s.admin(t)
		tables, err := sqllock.Schema(sqllock.MySQL, "")
		check(t, err)
		run(t, admin, append(tables, `INSERT INTO dlock_locks (name, token, since, expires, holder)
VALUES ('old', 1, 0, 0, '{}'), ('locked', 1, 0, `+mariadbNow+`, '{}')`)...)
		defer lockRows(t, admin, "dlock_locks", "locked")()
		s.open(t) // its janitor runs at once
		await.Until(t, "the old row is deleted", func() bool {
			return number(t, admin, `SELECT COUNT(*) FROM dlock_locks WHERE name = 'old'`) == 0
		})
	})
}

func TestWaiterRowsAmongFewRows(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		s := mariadb.target(t)
		store, admin := s.open(t), s.admin(t)
		watch := func(name string) (stop func()) {
			t.Helper()
			stop, err := store.Watch(t.Context(), request(name), func() {})
			check(t, err)
			return stop
		}
		stop := watch("leaves")
		defer watch("locked")()
		await.Until(t, "both have rows", func() bool { return number(t, admin, `SELECT COUNT(*) FROM dlock_queue`) == 2 })
		defer lockRows(t, admin, "dlock_queue", "locked")()
		stop()
		await.Until(t, "the waiter that has left has no row", func() bool {
			return number(t, admin, `SELECT COUNT(*) FROM dlock_queue WHERE name = 'leaves'`) == 0
		})
	})
}

// TestCommandOnStoppedServer: a server that is stopped is reported within the limit that
// was given or five seconds.
func TestCommandOnStoppedServer(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		server := servers.Run(t, servers.MariaDB)
		command.Run(t, server.URL(), "version") // builds it
		check(t, server.Pause())
		t.Cleanup(func() { _ = server.Resume() }) // so that it can be stopped in order
		for _, c := range []struct{ flag, says string }{
			{"--no-wait", "no answer within 5s"},
			{"--wait=1s", "no answer within 1s"},
		} {
			t.Run(c.flag, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				out := command.Run(t, server.URL(), "exec", c.flag, "a", "--", "true")
				if took := time.Since(began); took > limit {
					t.Errorf("it took %v; want %v at most", took, limit)
				}
				if out.Status != 69 || !strings.Contains(out.Stderr, c.says) {
					t.Errorf("%+v; want 69 and %q", out, c.says)
				}
			})
		}
	})
}

// TestWithoutPreparedStatements: a store works on a server that admits no prepared statement, or only a few,
// because other clients have the others.
func TestWithoutPreparedStatements(t *testing.T) {
	only(t, mariadb, func(t *testing.T) {
		for _, left := range []int{0, 2, 4} {
			s := mariadb.on(t, servers.Run(t, mariadb.kind, fmt.Sprintf("--max-prepared-stmt-count=%d", left)))
			store := s.open(t)
			grants := acquire(t, store, "x")
			more, err := store.AcquireAll(within(t), []driver.Request{request("y"), request("z")})
			check(t, err)
			reader, err := store.Acquire(within(t), requestIn(shared, "shared"))
			check(t, err)
			mustBeHeld(t, store, fairRequest("x"))
			grants = append(append(grants, more...), reader)
			mustRenew(t, store, grants...)
			for info, err := range store.List(within(t), "") {
				if err != nil || info.Holder.Host != "here" {
					t.Errorf("List: %+v, %v", info, err)
				}
			}
			if findings, err := store.Diagnose(within(t)); err != nil {
				t.Errorf("Diagnose: %v, %v", findings, err)
			}
			release(t, store, grants...)
		}
	})
}
