// Package statement holds the statements with which sqllock keeps locks in rows, for every
// dialect, and runs them.
package statement

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// ID names a statement that every dialect has, with the same arguments.
// Times are in milliseconds, lists are JSON. A token is the last one of a grant's span.
type ID int

// The statements, with their arguments and what they answer.
const (
	Acquire      ID = iota // name, owner, ttl, holder, token that the row must have or 0, span -> token
	AcquireFair            // the same, unless another owner heads the queue
	InsertFree             // name: a row without an owner, if there is none; empty where Acquire inserts
	Current                // name, owner -> token, whether another owner holds it, holder, remaining
	Blocker                // name, owner -> token, holder, remaining: of another owner's lock, or token 0 and remaining of the queue's head if that is another owner
	Renew                  // [[name, owner, token, ttl]] -> name, owner of each that was renewed
	RenewAtOnce            // the same, and fails if a row is locked; on servers only
	Renewed                // the same list -> name, owner of each that is held; empty where Renew answers
	Release                // name, owner, token or 0
	Break                  // name, token
	List                   // first name, limit -> name, token, holder, since, remaining, waiters
	Enqueue                // name, owner, ttl
	KeepPlaces             // [[name, owner, ttl]]: of places that have not lapsed
	KeptPlaces             // the same list -> name, owner of each that has not lapsed
	Leave                  // name, owner: because the owner was granted the lock
	GiveUp                 // name, owner
	Prune                  // name
	Poll                   // [name], horizon -> of each that is free, ends within the horizon or changed hands recently: index, remaining or 0, head's owner and remaining or NULL, whether recently
	Publish                // [[name, owner]], ttl
	Unpublish              // [[name, owner]]
	JanitorDue             // interval -> whether the last run is as long ago
	JanitorClaim           // interval; changes nothing if it is not
	JanitorPage            // after name, limit, age -> name, token, whether it may be deleted
	Floor                  // -> the highest token that was deleted
	RaiseFloor             // token
	DeleteLocks            // [name], age, highest token
	DeletePlaces           // limit
	count
)

// texts are statements with the placeholders of sqldb.Tables.Expand and of words.
type texts [count]string

// words are what the dialects write differently in the statements that they share.
type words struct {
	key      string // the column of that name
	fair     string // the condition that a place is that of a fair waiter
	no, yes  string // of type boolean
	greatest string // the function
	nobody   string // the holder of a free lock
	from     string // the first argument, a name
}

// Parts of several statements.
const (
	held    = `owner IS NOT NULL AND expires > {now}`
	setFree = `UPDATE {locks} SET owner = NULL, expires = {now}, holder = {nobody}`
	head    = `FROM {queue} WHERE name = ?1:text AND {fair} AND expires > {now} ORDER BY seq LIMIT 1`
	// A time in the future is one from before the clock stepped back.
	longAgo  = `(value <= {now} - ?1:int OR value > {now})`
	recently = `{now} - 100`
)

// shared are the statements of which the dialects write no more than words differently.
var shared = texts{
	Current: `SELECT token, coalesce(owner <> ?2:text AND expires > {now}, {no}), holder, expires - {now} FROM {locks} WHERE name = ?1:text`,
	Blocker: `SELECT token, holder, expires - {now} FROM {locks} WHERE name = ?1:text AND owner <> ?2:text AND expires > {now}
UNION ALL SELECT 0, {nobody}, remaining FROM (SELECT owner, expires - {now} AS remaining ` + head + `) AS h WHERE owner <> ?2:text
ORDER BY token DESC LIMIT 1`,
	Release: setFree + ` WHERE name = ?1:text AND owner = ?2:text AND (?3:int = 0 OR token = ?3:int) AND expires > {now}`,
	Break:   setFree + ` WHERE name = ?1:text AND token = ?2:int AND ` + held,
	List: `SELECT name, token, holder, since, expires - {now},
	(SELECT count(*) FROM {queue} AS q WHERE q.name = l.name AND q.expires > {now})
FROM {locks} AS l WHERE name >= {from} AND ` + held + ` ORDER BY name LIMIT ?2:int`,
	Enqueue: `INSERT INTO {queue} AS q (name, owner, fair, expires) VALUES (?1:text, ?2:text, {yes}, {now} + ?3:int)
ON CONFLICT (name, owner) DO UPDATE SET expires = {greatest}(q.expires, excluded.expires)`,
	Leave:        `DELETE FROM {queue} WHERE name = ?1:text AND owner = ?2:text`,
	GiveUp:       `DELETE FROM {queue} WHERE name = ?1:text AND owner = ?2:text`,
	Prune:        `DELETE FROM {queue} WHERE name = ?1:text AND expires <= {now}`,
	JanitorDue:   `SELECT ` + longAgo + ` FROM {meta} WHERE {key} = 'swept'`,
	JanitorClaim: `UPDATE {meta} SET value = {now} WHERE {key} = 'swept' AND ` + longAgo,
	JanitorPage:  `SELECT name, token, expires <= {now} - ?3:int FROM {locks} WHERE name > {from} ORDER BY name LIMIT ?2:int`,
	Floor:        `SELECT value FROM {meta} WHERE {key} = 'floor'`,
	RaiseFloor:   `UPDATE {meta} SET value = {greatest}(value, ?1:int) WHERE {key} = 'floor'`,
	DeletePlaces: `DELETE FROM {queue} WHERE seq IN (SELECT seq FROM {queue} WHERE expires <= {now} LIMIT ?1:int)`,
}

// with returns the shared statements with the words of a dialect, and its own statements.
func (own texts) with(w words) texts {
	replacer := strings.NewReplacer("{key}", w.key, "{fair}", w.fair, "{no}", w.no, "{yes}", w.yes,
		"{greatest}", w.greatest, "{nobody}", w.nobody, "{from}", w.from)
	for id, text := range own {
		if text == "" {
			text = shared[id]
		}
		own[id] = replacer.Replace(text)
	}
	return own
}

// Set are the statements of one dialect, ready to be run.
type Set [count]query

// NewSet returns the statements for the tables.
func NewSet(facts *sqldb.Facts, tables *sqldb.Tables) *Set {
	set := &Set{}
	for id, text := range ofDialect[facts.Dialect]() {
		set[id].Query = facts.Bind(tables.Expand(facts.Now, text))
	}
	return set
}

var ofDialect = map[sqldb.Dialect]func() texts{sqldb.SQLite: sqliteTexts, sqldb.MySQL: mysqlTexts, sqldb.Postgres: postgresTexts}

// Schema returns the statements that create the tables that are missing.
//
// A released lock keeps its row in the table of locks for the sake of the token, without an
// owner and with the time of its release as expires. The queue has the places of fair
// waiters, in the order of seq, and rows of other waiters, which List counts. The value
// floor is the highest token whose row was deleted, swept the time of the janitor's last run.
func Schema(facts *sqldb.Facts, tables *sqldb.Tables) (expanded []string) {
	schema := map[sqldb.Dialect][]string{sqldb.SQLite: sqliteSchema, sqldb.MySQL: mysqlSchema, sqldb.Postgres: postgresSchema}
	for _, text := range schema[facts.Dialect] {
		expanded = append(expanded, tables.Expand(facts.Now, text))
	}
	return expanded
}

// query is a statement in the form in which it is run.
type query struct {
	sqldb.Query
	stmt *sql.Stmt // nil where the driver prepares it, or nothing does
}

// Prepare prepares all statements.
func (s *Set) Prepare(ctx context.Context, db *sql.DB) (err error) {
	for id := range s {
		if q := &s[id]; q.Text != "" && q.stmt == nil {
			if q.stmt, err = db.PrepareContext(ctx, q.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes what was prepared.
func (s *Set) Close() error {
	var errs []error
	for id := range s {
		if q := &s[id]; q.stmt != nil {
			errs = append(errs, q.stmt.Close())
			q.stmt = nil
		}
	}
	return errors.Join(errs...)
}

// Runner runs statements, each on its own or all in a transaction. The
// comment of a statement's constant lists its arguments.
type Runner struct {
	set *Set
	on  interface { // a *sql.DB or a *sql.Tx
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

// On returns a runner of statements each on its own.
func (s *Set) On(db *sql.DB) Runner { return Runner{s, db} }

// In returns a runner of statements in a transaction.
func (s *Set) In(tx *sql.Tx) Runner { return Runner{s, tx} }

// prepared returns the statement for this runner; nil if it is not prepared.
func (r Runner) prepared(ctx context.Context, q *query) *sql.Stmt {
	if tx, ok := r.on.(*sql.Tx); ok && q.stmt != nil {
		return tx.StmtContext(ctx, q.stmt)
	}
	return q.stmt
}

// CreateTables creates the tables that are missing.
func (r Runner) CreateTables(ctx context.Context, facts *sqldb.Facts, tables *sqldb.Tables) error {
	return sqldb.ExecAll(ctx, r.on, Schema(facts, tables)...)
}

// Exec runs a statement that answers nothing.
func (r Runner) Exec(ctx context.Context, id ID, args ...any) (sql.Result, error) {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		return stmt.ExecContext(ctx, q.Arrange(args...)...)
	}
	return r.on.ExecContext(ctx, q.Text, q.Arrange(args...)...)
}

// Changed runs a statement and reports whether it changed anything.
func (r Runner) Changed(ctx context.Context, id ID, args ...any) (bool, error) {
	result, err := r.Exec(ctx, id, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// One reads the first row of the answer. The error is sql.ErrNoRows if the answer is empty.
func (r Runner) One(ctx context.Context, id ID, args []any, dest ...any) error {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		return stmt.QueryRowContext(ctx, q.Arrange(args...)...).Scan(dest...)
	}
	return r.on.QueryRowContext(ctx, q.Text, q.Arrange(args...)...).Scan(dest...)
}

// Each calls fn for each row of the answer.
func (r Runner) Each(ctx context.Context, id ID, args []any, fn func(scan func(...any) error) error) error {
	q := &r.set[id]
	if stmt := r.prepared(ctx, q); stmt != nil {
		rows, err := stmt.QueryContext(ctx, q.Arrange(args...)...)
		return sqldb.ScanAll(rows, err, fn)
	}
	rows, err := r.on.QueryContext(ctx, q.Text, q.Arrange(args...)...)
	return sqldb.ScanAll(rows, err, fn)
}

// Key identifies a row in an answer: an owner is of one acquisition only.
type Key struct{ Name, Owner string }

// Keys collects the answer of a statement. It is not nil unless there is an error.
func (r Runner) Keys(ctx context.Context, id ID, list string) (map[Key]bool, error) {
	keys := make(map[Key]bool)
	err := r.Each(ctx, id, []any{list}, func(scan func(...any) error) error {
		var key Key
		err := scan(&key.Name, &key.Owner)
		keys[key] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// TakeReturning runs an attempt in a database that answers an update with its rows. It
// returns the token, zero if the attempt was refused.
func TakeReturning(ctx context.Context, run Runner, id ID, args ...any) (token uint64, err error) {
	if err = run.One(ctx, id, args, &token); errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return token, err
}

// TakeInsertID runs an attempt in MySQL, where the token is the insert id. How many rows
// changed is not asked: whether a row that is the same as before counts is a setting of
// the connection.
func TakeInsertID(ctx context.Context, run Runner, id ID, args ...any) (token uint64, err error) {
	result, err := run.Exec(ctx, id, args...)
	if err != nil {
		return 0, err
	}
	last, err := result.LastInsertId()
	return uint64(last), err
}

// RenewReturning runs a renewal in a database that answers an update with its rows. It
// returns which of the n in the list were renewed; nil is all.
func RenewReturning(ctx context.Context, run Runner, id ID, list string, n int) (map[Key]bool, error) {
	keys, err := run.Keys(ctx, id, list)
	if len(keys) == n {
		keys = nil
	}
	return keys, err
}

// RenewThenRead is RenewReturning for MySQL. If not all rows have changed, it reads which locks
// are held: a lock that was renewed twice within a millisecond does not change.
func RenewThenRead(ctx context.Context, run Runner, id ID, list string, n int) (map[Key]bool, error) {
	result, err := run.Exec(ctx, id, list)
	if err != nil {
		return nil, err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == int64(n) {
		return nil, err
	}
	return run.Keys(ctx, Renewed, list)
}
