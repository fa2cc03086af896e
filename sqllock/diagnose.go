package sqllock

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
	"github.com/dlock-go/dlock/internal/inwords"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	for _, check := range s.dialect.checks {
		var f driver.Finding
		err := s.read(ctx, "diagnose", func() (err error) {
			f, err = check(ctx, s)
			return err
		})
		if err != nil {
			return nil, err
		}
		findings = append(findings, f)
	}
	if s.dialect.waiting != nil { // it takes a connection of its own
		findings = append(findings, s.dialect.waiting(ctx, s))
	}
	return findings, nil
}

// check examines one thing. Being unable to reach the store is an error, all else a finding.
type check func(context.Context, *Store) (driver.Finding, error)

// problem turns an error of the server into a finding, and leaves what is no answer an error.
func (s *Store) problem(check string, err error) (driver.Finding, error) {
	why := s.facts.Classify(err)
	if why.Meaning == "" || why.Retry {
		return driver.Finding{}, err
	}
	return finding.Problem(check, "%s (%v)", why.Meaning, err), nil
}

// onDB is a check that both packages of locks in SQL databases make.
func onDB(examine func(context.Context, sqldb.Queryer) (driver.Finding, error)) check {
	return func(ctx context.Context, s *Store) (driver.Finding, error) { return examine(ctx, s.db) }
}

func (s *Store) ask(ctx context.Context, text string, dest ...any) error {
	return s.db.QueryRowContext(ctx, text).Scan(dest...)
}

var durability = sqldb.Durability{
	Fine: "What was confirmed survives a crash.", Lost: "the last locks and tokens", Breaks: driver.PromiseRestart,
}

// checkRights tries everything that the store does to its tables, on no row.
func checkRights(ctx context.Context, s *Store) (driver.Finding, error) {
	for _, text := range []string{
		`INSERT INTO {locks} (name, token, owner, since, expires, holder) SELECT name, token, owner, since, expires, holder FROM {locks} WHERE 1 = 0`,
		`UPDATE {locks} SET token = 0 WHERE 1 = 0`,
		`DELETE FROM {locks} WHERE 1 = 0`,
		`INSERT INTO {queue} (name, owner, mode, fair, expires) SELECT name, owner, mode, fair, expires FROM {queue} WHERE 1 = 0`,
		`UPDATE {queue} SET expires = 0 WHERE 1 = 0`,
		`DELETE FROM {queue} WHERE 1 = 0`,
		`UPDATE {meta} SET value = 0 WHERE 1 = 0`,
	} {
		if _, err := s.db.ExecContext(ctx, s.tables.Expand("", text)); err != nil {
			return s.problem("rights", err)
		}
	}
	return finding.OK("rights", "The tables can be read and written."), nil
}

func (s *Store) tableNames() string {
	return strings.Join([]string{s.tables.Locks, s.tables.Queue, s.tables.Meta}, ", ")
}

// checkTables reads the row that keeps tokens rising when rows are deleted.
func checkTables(ctx context.Context, s *Store) (driver.Finding, error) {
	if _, err := s.run().ReadFloor(ctx); err != nil {
		return s.problem("tables", err)
	}
	return finding.OK("tables", "%s", s.tableNames()), nil
}

// clockTolerance is what two clocks that are set over the network may differ by.
const clockTolerance = time.Second

func checkClock(ctx context.Context, s *Store) (driver.Finding, error) {
	var ms int64
	start := time.Now()
	err := s.ask(ctx, `SELECT `+s.facts.Now, &ms)
	server := time.UnixMilli(ms)
	if off := max(time.Until(server), start.Sub(server), 0); off > clockTolerance {
		return finding.Warning("clock", "The server's clock and this machine's differ by %s. Locks follow the server's alone. If that is the wrong one, setting it ends locks early or late.",
			inwords.Duration(off.Round(time.Millisecond))), err
	}
	return finding.OK("clock", "The server's clock, which alone counts, agrees with this machine's."), err
}

// pollInterval describes how often a connection polls for waiters.
func pollInterval() string {
	return inwords.Duration(notify.MinInterval) + " to " + inwords.Duration(notify.MaxInterval)
}

var sqliteChecks = []check{sqliteFile, sqliteLocking, sqliteJournal, sqliteSynchronous, sqliteTables, sqliteWritable}

func sqliteFile(_ context.Context, s *Store) (driver.Finding, error) {
	const name = "file"
	path := s.file
	if path == "" {
		return finding.Breaking(driver.PromiseRestart, finding.Warning(name, "The database is in memory: no other process sees its locks, and they end with this one.")), nil
	}
	switch kind, remote := fileSystem(path); {
	case remote:
		return finding.Breaking(driver.PromiseExclusion, finding.Problem(name, "%s is on a network file system (%s). SQLite needs a local one, or two can hold a lock at once.", path, kind)), nil
	case openFolder(path) != "":
		return finding.Warning(name, "Other users may write to %s: they can replace %s, or at least create the files that SQLite reads beside it. Use a folder that only users of the locks may write to.", openFolder(path), path), nil
	case kind != "":
		return finding.Warning(name, "%s is on a file system (%s) that may be remote. Make sure that it is not, since SQLite needs a local one.", path, kind), nil
	}
	return finding.OK(name, "%s", path), nil
}

func sqliteLocking(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "locking"
	if s.file == "" {
		return finding.OK(name, "No other process uses the database."), nil
	}
	switch locks, tested := sqldb.SQLiteLocks(ctx, s.db); {
	case !locks:
		return finding.Breaking(driver.PromiseExclusion, finding.Problem(name, "In %s %s.", s.file, unlocked)), nil
	case !tested:
		return finding.OK(name, "Not tested: the pool gave no second connection."), nil
	}
	return finding.OK(name, "A connection keeps others from writing."), nil
}

func sqliteJournal(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "journal_mode"
	var mode string
	err := s.ask(ctx, `PRAGMA journal_mode`, &mode)
	switch mode {
	case "wal":
		return finding.OK(name, "%s", mode), err
	case "off", "memory":
		return finding.Breaking(driver.PromiseRestart, finding.Problem(name, "%s: a crash can damage the database. Use WAL; SQLiteDSN does.", mode)), err
	}
	return finding.Warning(name, "%s: a reader keeps writers waiting. Use WAL; SQLiteDSN does.", mode), err
}

func sqliteSynchronous(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "synchronous"
	var level int
	err := s.ask(ctx, `PRAGMA synchronous`, &level)
	value := [...]string{"off", "normal", "full", "extra"}[min(max(level, 0), 3)]
	if level < 2 {
		return finding.Breaking(driver.PromiseRestart, finding.Warning(name, "%s: a power failure can undo the last locks and tokens. Use FULL; SQLiteDSN does.", value)), err
	}
	return finding.OK(name, "%s", value), err
}

func sqliteTables(ctx context.Context, s *Store) (driver.Finding, error) {
	const count = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name COLLATE NOCASE IN (?1, ?2, ?3)`
	var n int
	err := s.db.QueryRowContext(ctx, count, s.tables.Locks, s.tables.Queue, s.tables.Meta).Scan(&n)
	if n < 3 {
		return finding.Problem("tables", "%s: not all of them exist any more. Open the store again.", s.tableNames()), err
	}
	return finding.OK("tables", "%s", s.tableNames()), err
}

// sqliteWritable writes without changing anything.
func sqliteWritable(ctx context.Context, s *Store) (driver.Finding, error) {
	_, err := s.db.ExecContext(ctx, s.tables.Expand("", `UPDATE {meta} SET value = value WHERE key = 'floor'`))
	if why := s.classify(err); err != nil && ctx.Err() == nil && !why.Retry {
		return finding.Problem("writable", "The database cannot be written: %s: %v.", why.Meaning, err), nil
	}
	return finding.OK("writable", "The file can be written to."), err
}

var mysqlChecks = []check{onDB(sqldb.MySQLServer), mysqlEngine, checkTables, checkRights,
	onDB(durability.MySQL), onDB(durability.MySQLReplicas), onDB(sqldb.MySQLEncryption), checkClock}

// mysqlEngine finds engines in which a failed statement is not undone and a crash loses data.
func mysqlEngine(ctx context.Context, s *Store) (driver.Finding, error) {
	var other []string
	const text = `SELECT table_name, COALESCE(engine, 'none') FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN ('{locks}', '{queue}', '{meta}')`
	engines := s.tables.Expand("", text)
	query := func() (*sql.Rows, error) {
		return s.db.QueryContext(ctx, engines)
	}
	err := sqldb.Each(query, func(scan func(...any) error) error {
		var table, engine string
		err := scan(&table, &engine)
		if !strings.EqualFold(engine, "InnoDB") {
			other = append(other, table+" ("+engine+")")
		}
		return err
	})
	if len(other) > 0 {
		return finding.Breaking(driver.PromiseRestart, finding.Problem("engine", "%s: the tables must be InnoDB, or a crash loses locks and tokens.", strings.Join(other, ", "))), err
	}
	return finding.OK("engine", "InnoDB"), err
}

func mysqlWaiting(context.Context, *Store) driver.Finding {
	return finding.OK("waiting", "One connection polls for all waiters, every %s.", pollInterval())
}

var postgresChecks = []check{onDB(sqldb.PostgresServer), postgresTables, checkRights, postgresTransactions,
	onDB(durability.Postgres), onDB(durability.PostgresReplicas), onDB(sqldb.PostgresEncryption), checkClock}

func postgresTables(ctx context.Context, s *Store) (driver.Finding, error) {
	if err := checkColumns(ctx, s.db, s.tables, "key"); err != nil {
		return s.problem("tables", err)
	}
	return checkTables(ctx, s)
}

// postgresTransactions begins one, which PgBouncer may not allow.
func postgresTransactions(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "transactions"
	if err := s.inTx(ctx, func(statement.Runner) error { return nil }); err != nil {
		return s.problem(name, err)
	}
	return finding.OK(name, "The store can use transactions."), nil
}

// postgresWaiting listens as the poller does.
func postgresWaiting(ctx context.Context, s *Store) driver.Finding {
	if err := s.listener(func(string) {}).Try(ctx); err != nil {
		return finding.Warning("waiting", "Waiters poll, every %s, since they cannot be notified: %v.", pollInterval(), err)
	}
	return finding.OK("waiting", "Waiters are notified by LISTEN on one connection.")
}
