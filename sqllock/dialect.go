package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Dialect is a kind of database.
type Dialect = sqldb.Dialect

const (
	// SQLite is a file that the processes of one machine share. It needs SQLite
	// 3.42 or newer and is tested with modernc.org/sqlite; see [SQLiteDSN].
	SQLite = sqldb.SQLite

	// MySQL is MySQL 8 or MariaDB 10.6, or newer. It is tested with MariaDB and
	// github.com/go-sql-driver/mysql.
	MySQL = sqldb.MySQL

	// Postgres is PostgreSQL 12 or newer. It is tested with github.com/jackc/pgx/v5. Behind
	// PgBouncer waiters poll. In transaction mode the driver must prepare no statements.
	Postgres = sqldb.Postgres
)

// Scheme says how a lock is kept.
type Scheme int

// The schemes. All programs that share a lock have to use the same one.
const (
	// Row keeps a lock in a row, taken by one statement. It expires.
	Row Scheme = iota
	// Version reads the row first, and then updates it if it has not changed since. It
	// expires.
	Version
)

var schemes = sqldb.Schemes{Row: "row", Version: "version"}

func (s Scheme) String() string { return schemes.Name(int(s)) }

// ParseScheme returns the scheme of that name.
func ParseScheme(name string) (Scheme, error) {
	s, err := schemes.Parse(name)
	return Scheme(s), err
}

// dialect is how a store uses a kind of database.
type dialect struct {
	writers           int            // how many write at once
	readers           int            // how many read at once; zero: readers are counted as writers
	renewers          int            // how many renew beside the writers; zero where a writer locks the whole database
	prepares          []statement.ID // which statements the store prepares
	preparesAll       bool           // it prepares all
	acquireInserts    bool           // statement.Acquire also inserts a row that is missing
	prefersTx         bool           // several statements of one writer cost less in a transaction
	oneMachine        bool           // driver.Traits.OneMachine
	reaction          time.Duration  // driver.Traits.Reaction; zero is unknown
	blockedLimit      time.Duration  // how long a call that other transactions block is tried again, before other calls have its writer
	tx                *sql.TxOptions // of transactions
	endIgnoresContext bool           // the driver ends a transaction whatever its context says
	limitIdle         string         // comes before a transaction, see Store.beginTx; may be empty
	unlimitIdle       string         // comes after it

	check  func(context.Context, *sql.DB, *sqldb.Tables) error // fails if the server cannot be used; nil without a server
	follow func(*Store) notify.Source
	// Of Diagnose:
	checks  []check
	waiting func(context.Context, *Store) driver.Finding // how waiters are notified; may be nil
}

// serverConns is how many connections to a server are used at once, besides the listener's: as many
// as a pool keeps idle by default, since it would open and close others again and again. Renewals,
// which are rare, use spareConns more while all the others are in use.
const (
	serverConns = 2
	spareConns  = 1
)

// A statement waits for a row that another transaction keeps locked for a second at most, because meanwhile
// it occupies a writer, and its own transaction keeps other rows locked. Jobs whose transaction waited for so
// long run alone.
const (
	serverBlockedLimit = time.Second / 2
	mysqlLockWait      = sqldb.MySQLLimitIdle + `, @dlock_lock_wait = @@innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1`
	mysqlOldLockWait   = sqldb.MySQLUnlimitIdle + `, SESSION innodb_lock_wait_timeout = @dlock_lock_wait`
)

// hotStatements take and free a lock; the first is for the scheme version.
var hotStatements = []statement.ID{statement.ReadHolders, statement.Acquire, statement.Release}

var dialects = map[Dialect]*dialect{
	// SQLite admits one writer at a time, and a transaction saves waiting for the disk.
	SQLite: {
		writers: 1, readers: 8, preparesAll: true, acquireInserts: true, prefersTx: true, oneMachine: true,
		blockedLimit: busyLimit, follow: followSQLite, checks: sqliteChecks,
	},
	MySQL: {
		writers: serverConns, renewers: spareConns, prepares: hotStatements, endIgnoresContext: true, reaction: 2 * time.Millisecond,
		blockedLimit: serverBlockedLimit, limitIdle: mysqlLockWait, unlimitIdle: mysqlOldLockWait, check: checkMySQL,
		follow: func(*Store) notify.Source { return notify.Unnotified() },
		checks: mysqlChecks, waiting: mysqlWaiting,
	},
	Postgres: {
		writers: serverConns, renewers: spareConns, reaction: time.Millisecond, blockedLimit: serverBlockedLimit,
		// Each statement is right when it sees what was committed before it,
		// whatever the program's own transactions need.
		tx:     &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		check:  checkPostgres,
		follow: func(s *Store) notify.Source { return s.listener(s.waiters.notify).Follow(s.ctx) },
		checks: postgresChecks, waiting: postgresWaiting,
	},
}

// followSQLite follows the write-ahead log, or the database itself where there is
// none: every commit writes to one of them.
func followSQLite(s *Store) notify.Source {
	var mode string
	path := s.file
	err := s.db.QueryRowContext(s.ctx, `PRAGMA journal_mode`).Scan(&mode)
	switch {
	case err != nil:
		path = ""
	case mode == "wal":
		path += "-wal"
	}
	return notify.File(path)
}

// sqlitePath returns the path of the database, empty if it is in memory.
func sqlitePath(ctx context.Context, db *sql.DB) (path string, err error) {
	err = db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path)
	return path, err
}

// listener returns a listener that calls wake for every name that became free.
func (s *Store) listener(wake func(name string)) *notify.Listener {
	return &notify.Listener{DB: s.db, Channel: s.tables.Wake, Notify: wake, Send: func(payload string) error {
		ctx, cancel := context.WithTimeout(s.ctx, notify.EchoLimit)
		defer cancel()
		return s.read(ctx, "listen", func() error {
			_, err := s.db.ExecContext(ctx, `SELECT pg_notify($1::text, $2::text)`, s.tables.Wake, payload)
			return err
		})
	}}
}

const unlocked = "a connection does not keep another one from writing, and two programs could hold a lock at once: remove nolock=1 or vfs=unix-none from the data source name"

// checkFile learns the path of an SQLite file, and tests its locks. With a write-ahead log a file cannot be
// opened without locks, and the test would keep other processes waiting. It comes after the tables: a
// connection that is older than they are may miss them while another one writes.
func (s *Store) checkFile(ctx context.Context) error {
	var mode string
	var err error
	if s.file, err = sqlitePath(ctx, s.db); err == nil && s.file != "" {
		err = s.db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode)
	}
	if err != nil || s.file == "" || mode == "wal" {
		return err
	}
	if locks, _ := sqldb.SQLiteLocks(ctx, s.db); !locks {
		return fmt.Errorf("%w: %s", driver.ErrMisconfigured, unlocked)
	}
	return nil
}

func checkMySQL(ctx context.Context, db *sql.DB, t *sqldb.Tables) error {
	var safeUpdates bool
	err := sqldb.CheckMySQL(ctx, db)
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT @@sql_safe_updates`).Scan(&safeUpdates)
	}
	if err == nil && safeUpdates {
		err = fmt.Errorf("%w: sql_safe_updates is on, so that no lock could be renewed; leave it off for the connections of the store", driver.ErrMisconfigured)
	}
	if err != nil {
		return err
	}
	return checkColumns(ctx, db, t, "`key`")
}

func checkPostgres(ctx context.Context, db *sql.DB, t *sqldb.Tables) error {
	err := sqldb.CheckPq(ctx, db)
	if err == nil {
		err = sqldb.CheckPostgres(ctx, db)
	}
	if err != nil {
		return err
	}
	// The server translates names from the client's encoding. To two programs with different ones a
	// name that is not ASCII would be two rows.
	var client, server string
	err = db.QueryRowContext(ctx, `SELECT pg_client_encoding(), current_setting('server_encoding')`).Scan(&client, &server)
	if err == nil && client != "UTF8" && server != "SQL_ASCII" {
		err = fmt.Errorf("%w: client_encoding is %s; set it to UTF8 for the connections of the store", driver.ErrMisconfigured, client)
	}
	if err != nil {
		return err
	}
	return checkColumns(ctx, db, t, "key")
}

// checkColumns fails if a table or a column is missing. One of them has a keyword for a name.
func checkColumns(ctx context.Context, db *sql.DB, t *sqldb.Tables, key string) error {
	columns := `SELECT count(*) FROM (SELECT name, token, owner, since, expires, holder FROM {locks} WHERE false) AS l,
(SELECT seq, name, owner, fair, expires FROM {queue} WHERE false) AS q, (SELECT ` + key + `, value FROM {meta} WHERE false) AS m`
	var none int
	return db.QueryRowContext(ctx, t.Expand("", columns)).Scan(&none)
}

// Schema returns the statements that create the tables of a store, for an administrator to
// run where the program itself may not. An empty prefix is [DefaultTablePrefix].
func Schema(dialect Dialect, prefix string) ([]string, error) {
	facts, tables, err := sqldb.Configure(dialect, prefix)
	if err != nil {
		return nil, err
	}
	return statement.Schema(facts, tables), nil
}
