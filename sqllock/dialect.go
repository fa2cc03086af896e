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
	// github.com/go-sql-driver/mysql, whatever the settings of the connection are:
	// time zone, character set and whether rows that were found count as changed.
	MySQL = sqldb.MySQL

	// Postgres is PostgreSQL 12 or newer. It is tested with github.com/jackc/pgx/v5.
	//
	// It works through PgBouncer, in transaction mode too if the driver prepares no
	// statements. Waiters then poll, because notifications do not get through.
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
	writers        int            // how many write at once
	readers        int            // how many read at once; zero: readers are counted as writers
	renewers       int            // how many more renew at once; zero: renewals share transactions with other writers
	prepares       bool           // the store prepares statements, and so learns whether the tables exist
	inserts        bool           // statement.Acquire also inserts a row that is missing
	atomic         bool           // several statements of one writer cost less in a transaction
	oneMachine     bool           // see driver.Traits
	handover       time.Duration  // see driver.Traits
	tx             *sql.TxOptions // of transactions
	begin          string         // the first statement of a transaction; may be empty
	ignoresContext bool           // the driver ends a transaction whatever its context says
	limitIdle      string         // comes before a transaction, see Store.beginTx; may be empty
	unlimitIdle    string         // comes after it

	take   func(ctx context.Context, run statement.Runner, id statement.ID, args ...any) (token uint64, err error)
	renew  func(ctx context.Context, run statement.Runner, id statement.ID, list string, n int) (map[statement.Key]bool, error)
	check  func(context.Context, *sql.DB, *sqldb.Tables) error // fails if the server cannot be used
	follow func(*Store) notify.Source
	// Of Diagnose:
	checks  []check
	waiting func(context.Context, *Store) driver.Finding // how waiters are notified; may be nil
}

// serverSlots is how many connections to a server are used at once, besides the listener's.
// A pool keeps two idle connections by default; it would open and close a third again and
// again. Renewals use spareSlots more while all the others are in use.
const (
	serverSlots = 2
	spareSlots  = 1
)

var dialects = map[Dialect]*dialect{
	// SQLite admits one writer at a time, and a transaction saves waiting for the disk.
	SQLite: {
		writers: 1, readers: 8, prepares: true, inserts: true, atomic: true, oneMachine: true,
		take: statement.TakeReturning, renew: statement.RenewReturning, check: acceptAny, follow: followSQLite,
		checks: sqliteChecks,
	},
	MySQL: {
		writers: serverSlots, renewers: spareSlots, prepares: true, ignoresContext: true, handover: 2 * time.Millisecond,
		limitIdle: sqldb.MySQLLimitIdle, unlimitIdle: sqldb.MySQLUnlimitIdle,
		take: statement.TakeInsertID, renew: statement.RenewThenRead, check: checkMySQL,
		follow: func(*Store) notify.Source { return notify.Unnotified() },
		checks: mysqlChecks, waiting: mysqlWaiting,
	},
	Postgres: {
		writers: serverSlots, renewers: spareSlots, handover: time.Millisecond,
		// Each statement is right when it sees what was committed before it,
		// whatever the program's own transactions need.
		tx: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
		// A process that is stopped in the middle must not keep rows locked.
		begin: `SET LOCAL idle_in_transaction_session_timeout = '2s'`,
		take:  statement.TakeReturning, renew: statement.RenewReturning, check: checkPostgres,
		follow: func(s *Store) notify.Source { return s.listener(s.waiters.notify).Follow(s.ctx) },
		checks: postgresChecks, waiting: postgresWaiting,
	},
}

// followSQLite follows the write-ahead log, or the database itself where there is
// none: every commit writes to one of them.
func followSQLite(s *Store) notify.Source {
	var mode string
	path, err := sqlitePath(s.ctx, s.db)
	if err == nil && path != "" {
		err = s.db.QueryRowContext(s.ctx, `PRAGMA journal_mode`).Scan(&mode)
	}
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

func acceptAny(context.Context, *sql.DB, *sqldb.Tables) error { return nil }

// checkMySQL refuses a server or connections that cannot be used.
func checkMySQL(ctx context.Context, db *sql.DB, _ *sqldb.Tables) error {
	var safeUpdates bool
	err := sqldb.CheckMySQL(ctx, db)
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT @@sql_safe_updates`).Scan(&safeUpdates)
	}
	if err == nil && safeUpdates {
		err = fmt.Errorf("%w: sql_safe_updates is on, so that no lock could be renewed; leave it off for the connections of the store", driver.ErrMisconfigured)
	}
	return err
}

// checkPostgres refuses a server that cannot be written to, and tables that are not as expected.
func checkPostgres(ctx context.Context, db *sql.DB, t *sqldb.Tables) error {
	if err := sqldb.CheckPostgres(ctx, db); err != nil {
		return err
	}
	return checkColumns(ctx, db, t)
}

// checkColumns fails if a table or a column is missing.
func checkColumns(ctx context.Context, db *sql.DB, t *sqldb.Tables) error {
	const columns = `SELECT count(*) FROM (SELECT name, token, owner, since, expires, holder FROM {locks} WHERE false) AS l,
(SELECT seq, name, owner, fair, expires FROM {queue} WHERE false) AS q, (SELECT key, value FROM {meta} WHERE false) AS m`
	var none int
	return db.QueryRowContext(ctx, t.Expand("", columns)).Scan(&none)
}

// Schema returns the statements that create the tables of a store, for an administrator to
// run where the program itself may not create tables. An empty prefix is
// [DefaultTablePrefix].
func Schema(dialect Dialect, prefix string) ([]string, error) {
	facts, err := sqldb.FactsOf(dialect)
	if err != nil {
		return nil, err
	}
	tables, err := sqldb.NewTables(prefix)
	if err != nil {
		return nil, err
	}
	return statement.Schema(facts, &tables), nil
}
