package sqllock

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Dialect is a kind of database. Its values are those of this package.
type Dialect interface {
	// String is the kind of store that Traits report.
	String() string

	// schema returns the statements that create the tables and leave alone
	// those that exist.
	schema(tables) []string
	statements(tables) [statementCount]string

	// classify says what a failed statement means.
	classify(error) failure

	// changes begins to look for commits of other processes.
	changes(context.Context, *sql.DB) changes

	// diagnose is Store.Diagnose.
	diagnose(context.Context, *sql.DB, tables) ([]driver.Finding, error)
}

// failure is what an error of the database means to the store.
type failure struct {
	retry   bool   // nothing happened, and trying again is worth it
	explain string // for people, where the driver's text says too little; may be empty
}

// statement names a text that every dialect has, with the same parameters.
// Times are in milliseconds, lists are JSON.
type statement int

const (
	acquire     statement = iota // name, owner, ttl, holder -> token
	acquireFair                  // the same, unless somebody else heads the queue
	blocker                      // name, owner -> token, holder, remaining: of another owner's lock, or token 0 and remaining of the queue's head
	renew                        // [[name, owner, token, ttl]] -> name, owner of each that was renewed
	release                      // name, owner, token or 0
	breakLock                    // name, token
	list                         // first name, limit -> name, token, holder, since, remaining, waiters
	enqueue                      // name, owner, ttl
	leave                        // name, owner
	prune                        // name
	look                         // [name], horizon -> of each that is free, or is within it: index, remaining or 0, head's owner and remaining or NULL
	publish                      // [[name, owner]], ttl
	unpublish                    // [[name, owner]]
	sweepDue                     // interval -> whether the last sweep is as long ago
	claimSweep                   // interval; changes nothing if it is not
	sweepPage                    // after name, limit, age -> name, whether it may go
	sweepLocks                   // [name], age -> token of each that went
	sweepQueue                   // limit
	raiseFloor                   // token
	statementCount
)

// tables are the names of the store's tables.
type tables struct{ locks, queue, meta string }

// maxPrefix leaves room for the rest of the name in every database.
const maxPrefix = 40

func newTables(prefix string) (tables, error) {
	if prefix == "" {
		prefix = DefaultTablePrefix
	}
	if len(prefix) > maxPrefix {
		return tables{}, fmt.Errorf("sqllock: table prefix %q has more than %d characters", prefix, maxPrefix)
	}
	for i, c := range []byte(prefix) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return tables{}, fmt.Errorf("sqllock: table prefix %q: letters, digits and _ are allowed, and no digit at the start", prefix)
		}
	}
	return tables{locks: prefix + "locks", queue: prefix + "queue", meta: prefix + "meta"}, nil
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
