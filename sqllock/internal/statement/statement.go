// Package statement holds the statements with which sqllock keeps locks in rows, for every
// dialect, and runs them.
package statement

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// ID names a statement that every dialect has, with the same arguments.
// Times are in milliseconds, lists are JSON. A token is the last one of a grant.
type ID int

// The statements, with their arguments -> the columns of the rows that they return.
const (
	Begin       ID = iota // first in a transaction; empty if it needs none
	Acquire               // name, owner, ttl, holder, token that the row must have or 0, tokens of a grant -> token
	AcquireFair           // the same, unless another owner heads the queue
	InsertFree            // name: a row without an owner, if there is none
	// Blocker returns the lock of another owner, or with token 0 the head of the queue if that is
	// another owner and the lock is not the owner's.
	Blocker     // name, owner -> token, owner, since, expires, holder, now, whether fair waiters have places
	Renew       // [[name, owner, token, ttl]] -> name, owner of each that was renewed
	RenewAtOnce // the same, and fails on a server if a row is locked
	Renewed     // the same list -> name, owner of each that is held; empty where Renew returns rows
	Release     // name, owner, token or 0
	ReleaseAll  // [[name, owner, token]] -> name, owner of each that was released; empty where it saves no round trips
	LockHeld    // the same list -> name, owner of each that is held; empty where ReleaseAll returns rows
	Break       // name, the first and the last of the tokens that it may have
	List        // first name, limit -> name, the columns of Blocker from token to now, waiters
	// ReadRow also counts the places of a mode that come before that of an owner, or all of that mode if
	// it has none, and returns when the first of them expires; see sqllock/fair.go.
	ReadRow     // name, owner, mode -> token, owner, since, expires, holder, now, count, earliest expiry, whether fair waiters have places
	ReadHolders // the same with zeros for the places, which costs less
	LockRow     // that of ReadRow in a transaction, and keeps the row from changing until it ends
	ReadRows    // [name] -> name and the columns of ReadRow from token to now
	LockRows    // the same, and keeps the rows from changing; without rows that are locked
	// LockAll locks the rows in the order of the list, where LockRow locks one.
	LockAll        // [[name, owner, mode]] -> name and the columns of ReadRow, of each row that exists
	InsertAll      // [name]: InsertFree for each
	SaveAll        // [[name, token, owner, since, expires, holder]]
	SaveRow        // name, token, owner or NULL, since, expires, holder
	SaveFreed      // the same, and notifies waiters
	Enqueue        // name, owner, ttl, whether it counts for fair exclusive requests, mode
	KeepPlaces     // [[name, owner, ttl]]: of places that have not expired
	KeptPlaces     // the same list -> name, owner of each that has not expired
	UnlockedPlaces // the same without places that another transaction keeps locked; empty where none does
	Places         // name, limit -> owner, mode, whether fair, remaining: in the order of arrival
	DeletePlace    // name, owner: because the owner was granted the lock
	GiveUpPlace    // the same, and notifies waiters
	Prune          // name: deletes its expired places
	// Poll returns a row for each name that is free, expires within the horizon or changed hands
	// recently. SQLite does not report recent changes.
	Poll         // [name], horizon -> index, remaining or 0, head's owner and remaining or NULL, whether recently
	Publish      // [[name, waiter]], ttl
	Processes    // name, from, to -> how many waiters that Publish has written wait for it, for a remaining time between these
	Unpublish    // [[name, waiter]]
	JanitorDue   // interval -> whether the last run is as long ago
	JanitorClaim // interval; changes nothing if it is not
	JanitorPage  // after name, limit, age -> name, token, whether it may be deleted
	Floor        // -> the highest token that was deleted
	RaiseFloor   // token
	DeleteLocks  // [name], age, highest token
	DeletePlaces // limit
	count
)

// texts are statements with the placeholders of sqldb.Tables.Expand, and of words that the dialects
// write differently: {key} is the column of that name, {fair} the condition that a place is that of a
// fair waiter, {greatest} the function, {noholder} the holder of a free
// lock, and {from} the first argument, a name. A statement that begins with {limit}, or whose condition
// begins with {limited}, waits for a second at most for a row that another transaction keeps locked: a
// statement that runs alone keeps a writer from other calls meanwhile, and goes on if its caller has left.
type texts [count]string

// Parts of several statements.
const (
	held    = `owner IS NOT NULL AND expires > {now}`
	setFree = `{limit}UPDATE {locks} SET owner = NULL, expires = {now}, holder = {noholder} WHERE {limited}`
	head    = `FROM {queue} WHERE name = ?1:text AND {fair} AND expires > {now} ORDER BY seq LIMIT 1`
	row     = `l.token, l.owner, l.since, l.expires, l.holder, {now}`
	before  = ` FROM {queue} WHERE name = ?1:text AND expires > {now} AND mode = ?3:text
	AND seq < coalesce((SELECT p.seq FROM {queue} AS p WHERE p.name = ?1:text AND p.owner = ?2:text AND p.expires > {now}), 9223372036854775807)`
	// queued is 1 if a fair waiter has a place, otherwise 0.
	queued = `CASE WHEN EXISTS (SELECT 1 FROM {queue} WHERE name = ?1:text AND expires > {now}
	AND ({fair} OR mode NOT IN ('none', 'exclusive'))) THEN 1 ELSE 0 END`
	deletePlace = `{limit}DELETE FROM {queue} WHERE {limited}name = ?1:text AND owner = ?2:text`
	saveRow     = `UPDATE {locks} SET token = ?2:int, owner = ?3:text, since = ?4:int, expires = ?5:int, holder = ?6:text WHERE name = ?1:text`

	placesBefore = `(SELECT count(*)` + before + `), (SELECT coalesce(min(expires), 0)` + before + `), ` + queued
	rowAndPlaces = `SELECT ` + row + `, ` + placesBefore + ` FROM {locks} AS l`
	// A time in the future is one from before the clock stepped back.
	longAgo = `(value <= {now} - ?1:int OR value > {now})`
	// A lock that was granted in the future is from before the clock stepped back.
	recently = `BETWEEN {now} - 100 AND {now} + 100`
)

// commonTexts are the statements of which the dialects write no more than words differently.
var commonTexts = texts{
	Blocker: `SELECT ` + row + `, ` + queued + ` FROM {locks} AS l WHERE name = ?1:text AND owner <> ?2:text AND expires > {now}
UNION ALL SELECT 0, owner, 0, expires, {noholder}, {now}, 1 FROM (SELECT owner, expires ` + head + `) AS h WHERE owner <> ?2:text
	AND NOT EXISTS (SELECT 1 FROM {locks} WHERE name = ?1:text AND owner = ?2:text AND expires > {now})
ORDER BY token DESC LIMIT 1`,
	Release: setFree + `name = ?1:text AND owner = ?2:text AND (?3:int = 0 OR token = ?3:int) AND expires > {now}`,
	Break:   setFree + `name = ?1:text AND token BETWEEN ?2:int AND ?3:int AND owner NOT IN ('shared', 'permits') AND ` + held,
	List: `SELECT name, ` + row + `,
	(SELECT count(*) FROM {queue} AS q WHERE q.name = l.name AND q.expires > {now})
FROM {locks} AS l WHERE name >= {from} AND ` + held + ` ORDER BY name LIMIT ?2:int`,
	ReadRow:     rowAndPlaces + ` WHERE l.name = ?1:text`,
	ReadHolders: `SELECT ` + row + `, 0, 0, ` + queued + ` FROM {locks} AS l WHERE l.name = ?1:text`,
	SaveRow:     saveRow,
	SaveFreed:   saveRow,
	Enqueue: `INSERT INTO {queue} AS q (name, owner, mode, fair, expires) SELECT ?1:text, ?2:text, ?5:text, ?4:int = 1, {now} + ?3:int WHERE {limited}1 = 1
ON CONFLICT (name, owner) DO UPDATE SET expires = {greatest}(q.expires, excluded.expires)`,
	Places:       `SELECT owner, mode, {fair}, expires - {now} FROM {queue} WHERE name = ?1:text AND expires > {now} AND mode <> 'none' ORDER BY seq LIMIT ?2:int`,
	DeletePlace:  deletePlace,
	GiveUpPlace:  deletePlace,
	Prune:        `{limit}DELETE FROM {queue} WHERE {limited}name = ?1:text AND expires <= {now}`,
	Processes:    `SELECT count(*) FROM {queue} WHERE name = ?1:text AND expires > {now} + ?2:int AND expires <= {now} + ?3:int AND mode = 'none'`,
	JanitorDue:   `SELECT ` + longAgo + ` FROM {meta} WHERE {key} = 'swept'`,
	JanitorClaim: `{limit}UPDATE {meta} SET value = {now} WHERE {limited}{key} = 'swept' AND ` + longAgo,
	JanitorPage:  `SELECT name, token, expires <= {now} - ?3:int FROM {locks} WHERE name > {from} ORDER BY name LIMIT ?2:int`,
	Floor:        `SELECT value FROM {meta} WHERE {key} = 'floor'`,
	RaiseFloor:   `UPDATE {meta} SET value = {greatest}(value, ?1:int) WHERE {key} = 'floor'`,
	DeletePlaces: `DELETE FROM {queue} WHERE {limited}seq IN (SELECT seq FROM {queue} WHERE expires <= {now} LIMIT ?1:int)`,
}

// eachRow selects what LockAll returns. The owner and the mode for a name are columns of a list.
func eachRow(name, owner, mode string) string {
	return `SELECT l.name, ` + row + `, ` + strings.NewReplacer("?1:text", name, "?2:text", owner, "?3:text", mode).Replace(placesBefore)
}

// withWords returns the common statements and those of a dialect, with its words.
func (own texts) withWords(words ...string) texts {
	replacer := strings.NewReplacer(words...)
	for id, text := range own {
		if text == "" {
			text = commonTexts[id]
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
	for id, text := range ofDialect[facts.Dialect].texts() {
		set[id].Query = facts.Bind(tables.Expand(facts.Now, text))
		set[id].literals = facts.Dialect == sqldb.MySQL
	}
	return set
}

var ofDialect = map[sqldb.Dialect]struct {
	texts  func() texts
	schema []string
}{sqldb.SQLite: {sqliteTexts, sqliteSchema}, sqldb.MySQL: {mysqlTexts, mysqlSchema}, sqldb.Postgres: {postgresTexts, postgresSchema}}

// Schema returns the statements that create the tables that are missing.
//
// A released lock keeps its row in the table of locks for the sake of the token, without an
// owner and with the time of its release as expires. Package row says how a row has several
// holders. The queue has the places of waiters, in the order of seq, and with the mode none rows of
// other waiters, which List counts. The value floor is the highest token whose row was deleted, swept the time
// of the janitor's last run.
func Schema(facts *sqldb.Facts, tables *sqldb.Tables) (expanded []string) {
	for _, text := range ofDialect[facts.Dialect].schema {
		expanded = append(expanded, tables.Expand(facts.Now, text))
	}
	return expanded
}

// query is a statement in the form in which it is run.
type query struct {
	sqldb.Query
	stmt     *sql.Stmt // nil where the driver prepares it, or nothing does
	literals bool      // if it is not prepared, its arguments are part of the text
}

// bind returns what to run if the statement is not prepared.
func (q *query) bind(args []any) (text string, rest []any) {
	if q.literals {
		return q.WithLiterals(args...), nil
	}
	return q.Text, q.Arrange(args...)
}

// Prepare prepares statements, or all. If the server admits no more of them, that is no error.
func (s *Set) Prepare(ctx context.Context, db *sql.DB, ids ...ID) (err error) {
	for id := range s {
		if q := &s[id]; q.Text != "" && q.stmt == nil && (ids == nil || slices.Contains(ids, ID(id))) {
			if q.stmt, err = db.PrepareContext(ctx, q.Text); isTooMany(err) {
				q.stmt = nil
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// isTooMany reports whether MySQL refused to prepare a statement: max_prepared_stmt_count is for all clients.
func isTooMany(err error) bool { return sqldb.MySQLNumber(err) == 1461 }

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
