package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
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
	// It works through PgBouncer, in transaction mode too if the driver is told to
	// do without prepared statements there. Waiters then poll, because notifications
	// do not get through.
	Postgres = sqldb.Postgres
)

// dialect is how a store keeps locks in a kind of database: statements as data,
// capabilities as facts.
type dialect struct {
	schema     []string // creates the tables that are missing
	statements func() [statementCount]string
	checks     []check // of Diagnose, in their order

	writers    int            // how many write at once
	readers    int            // how many read at once; zero: readers are counted as writers
	renewers   int            // how many more renew at once; zero: renewals share transactions with other writers
	prepares   bool           // the store prepares statements, and so learns whether the tables exist
	inserts    bool           // acquire also inserts a row that is missing
	atomic     bool           // several statements of one writer cost less in a transaction
	oneMachine bool           // see driver.Traits
	handover   time.Duration  // see driver.Traits
	tx         *sql.TxOptions // of transactions
	begin      string         // begins a transaction, after that; may be empty
	deaf       bool           // the driver ends a transaction whatever its context says
	guard      string         // comes before a transaction, see Store.begin; may be empty
	unguard    string         // comes after it

	take   takeFunc                                           // runs acquire or acquireFair
	renew  renewFunc                                          // runs renew
	open   func(context.Context, *sql.DB, sqldb.Tables) error // fails if the server cannot be used; may be nil
	follow func(*Store) changes                               // begins to learn what others do
}

type (
	// takeFunc returns the token, zero if the attempt was refused.
	takeFunc func(ctx context.Context, run runner, s statement, args ...any) (uint64, error)
	// renewFunc returns which of the n in the list were renewed; nil is all.
	renewFunc func(ctx context.Context, run runner, s statement, list string, n int) (map[rowKey]bool, error)
)

var dialects = map[Dialect]*dialect{SQLite: &sqliteDialect, MySQL: &mysqlDialect, Postgres: &postgresDialect}

// serverSlots is how many connections to a server are used at once, besides one
// that listens. A pool keeps two that are idle by default; a third would be
// opened and closed again and again.
const serverSlots = 2

// spareSlots is how many more are used for renewals, while all the others are.
const spareSlots = 1

// statement names a text that every dialect has, with the same parameters.
// Times are in milliseconds, lists are JSON.
type statement int

const (
	acquire     statement = iota // name, owner, ttl, holder, token that the row must have or 0 -> token
	acquireFair                  // the same, unless somebody else heads the queue
	insertFree                   // name: a row that nobody holds, if there is none; unless acquire inserts
	current                      // name, owner -> token, whether it is another owner's, holder, remaining
	blocker                      // name, owner -> token, holder, remaining: of another owner's lock, or token 0 and remaining of the queue's head if that is another owner
	renew                        // [[name, owner, token, ttl]] -> name, owner of each that was renewed
	renewAtOnce                  // the same, and fails if a row is locked; on servers only
	renewed                      // the same list -> name, owner of each that is held; unless renew answers
	release                      // name, owner, token or 0
	pass                         // name, owner, token, the next owner, ttl, holder
	breakLock                    // name, token
	list                         // first name, limit -> name, token, holder, since, remaining, waiters
	enqueue                      // name, owner, ttl
	keepPlaces                   // [[name, owner, ttl]]: of places that have not lapsed
	keptPlaces                   // the same list -> name, owner of each that has not lapsed
	leave                        // name, owner: because it was served
	giveUp                       // name, owner
	prune                        // name
	look                         // [name], horizon -> of each that is free, ends within the horizon or changed hands recently: index, remaining or 0, head's owner and remaining or NULL, whether recently
	publish                      // [[name, owner]], ttl
	unpublish                    // [[name, owner]]
	sweepDue                     // interval -> whether the last sweep is as long ago
	claimSweep                   // interval; changes nothing if it is not
	sweepPage                    // after name, limit, age -> name, token, whether it may go
	floor                        // -> the highest token that was swept
	raiseFloor                   // token
	sweepLocks                   // [name], age, highest token
	sweepQueue                   // limit
	statementCount
)

// recently is a moment ago, for the statement look.
const recently = `{now} - 100`

// Schema returns the statements that create the tables of a store, for those
// who run them by hand because the program may not. An empty prefix is
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
	var texts []string
	for _, text := range dialects[dialect].schema {
		texts = append(texts, tables.Expand(facts.Now, text))
	}
	return texts, nil
}
