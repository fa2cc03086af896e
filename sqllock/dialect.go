package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Dialect is a kind of database. Its values are those of this package.
type Dialect interface {
	// String is the kind of store that Traits report.
	String() string

	profile() profile

	// schema returns the statements that create the tables and leave alone
	// those that exist.
	schema(tables) []string
	statements(tables) [statementCount]query

	// classify says what a failed statement means.
	classify(error) failure

	// diagnose is Store.Diagnose.
	diagnose(context.Context, *Store) ([]driver.Finding, error)
}

// profile is how a store uses a kind of database.
type profile struct {
	writers  int            // how many write at once
	readers  int            // how many read at once; zero: readers are counted as writers
	renewers int            // how many more renew at once; zero: renewals share transactions with other writers
	prepares bool           // the store prepares statements, and so learns whether the tables are there
	inserts  bool           // acquire also inserts a row that is missing
	atomic   bool           // several statements of one writer cost less in a transaction
	tx       *sql.TxOptions // of transactions
	begin    string         // begins a transaction, after that; may be empty
	deaf     bool           // the driver ends a transaction whatever its context says
	guard    string         // comes before a transaction, see Store.begin; may be empty
	unguard  string         // comes after it
	handover time.Duration  // see driver.Traits

	oneMachine bool       // see driver.Traits
	take       takeFunc   // runs acquire or acquireFair
	renew      renewFunc  // runs renew
	check      checkFunc  // whether the server can be used; may be nil
	follow     followFunc // begins to learn what others do

	// answered reports whether an error is the server's own answer, so that what was
	// asked is not carried out later. It is nil where nothing ever is.
	answered func(error) bool
}

type (
	// takeFunc returns the token, zero if the attempt was refused.
	takeFunc func(ctx context.Context, run runner, s statement, args ...any) (uint64, error)
	// renewFunc returns which of the n in the list were renewed; nil is all.
	renewFunc  func(ctx context.Context, run runner, s statement, list string, n int) (map[rowKey]bool, error)
	checkFunc  func(ctx context.Context, db *sql.DB, t tables) error
	followFunc func(s *Store) changes
)

// serverSlots is how many connections to a server are used at once, besides one
// that listens. A pool keeps two that are idle by default; a third would be
// opened and closed again and again.
const serverSlots = 2

// spareSlots is how many more are used for renewals, while all the others are.
const spareSlots = 1

// failure is what an error of the database means to the store.
type failure struct {
	retry   bool   // nothing happened, and trying again is worth it
	missing bool   // a table is missing, or is not as expected
	explain string // for people, where the driver's text says too little; may be empty
	kind    error  // of the contract; nil is driver.ErrUnreachable
}

// describe turns the error of a statement into one of the contract.
func (f failure) describe(op string, err error) error {
	kind := cmp.Or(f.kind, driver.ErrUnreachable)
	if f.explain != "" {
		return fmt.Errorf("%w: %s: %s: %w", kind, op, f.explain, oneLine(err))
	}
	return fmt.Errorf("%w: %s: %w", kind, op, oneLine(err))
}

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

// recentMillis is how long ago a lock that changed hands recently did, for the
// statement look.
const recentMillis = "100"

// expand puts the names of the tables and the clock into a text.
func (t tables) expand(now, text string) string {
	return strings.NewReplacer("{locks}", t.locks, "{queue}", t.queue, "{meta}", t.meta, "{bound}", t.bound(),
		"{now}", now, "{recent}", recentMillis).Replace(text)
}

// expandAll is expand for several texts.
func (t tables) expandAll(now string, texts []string) []string {
	for i, text := range texts {
		texts[i] = t.expand(now, text)
	}
	return texts
}

// tables are the names of the store's tables.
type tables struct {
	locks, queue, meta string
	wake               string // the channel on which PostgreSQL tells what became free
}

// maxPrefix leaves room for the rest of the name in every database.
const maxPrefix = 40

func newTables(prefix string) (tables, error) {
	if prefix == "" {
		prefix = DefaultTablePrefix
	}
	if len(prefix) > maxPrefix {
		return tables{}, fmt.Errorf("table prefix %q has more than %d characters", prefix, maxPrefix)
	}
	for i, c := range []byte(prefix) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return tables{}, fmt.Errorf("table prefix %q: letters, digits and _ are allowed, and no digit at the start", prefix)
		}
	}
	// Tables are the same whether their names are written large or small, and so is the channel.
	return tables{locks: prefix + "locks", queue: prefix + "queue", meta: prefix + "meta", wake: strings.ToLower(prefix) + "wake"}, nil
}

// Schema returns the statements that create the tables of a store, for those
// who run them by hand because the program may not. An empty prefix is
// [DefaultTablePrefix].
func Schema(dialect Dialect, prefix string) ([]string, error) {
	tables, err := newTables(prefix)
	if err != nil {
		return nil, err
	}
	return dialect.schema(tables), nil
}
