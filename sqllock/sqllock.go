// Package sqllock keeps locks in a database that is reached through database/sql. A lock is
// one row under its name, and expires. Package sqlsession has locks that live as long as a
// connection. The program brings the driver; this package requires none.
//
// SQLite makes a lock between the processes of one machine without a server. MySQL, MariaDB
// and PostgreSQL make a lock between machines:
//
//	store, err := sqllock.Open(ctx, "sqlite:///var/lib/app/locks.db", nil) // import _ "modernc.org/sqlite"
//	client := dlock.New(store, nil)
//
// On a server a store uses two connections of the pool, and a third to renew locks while both are
// busy. A call whose caller has left may keep its connection for longer. PostgreSQL notifies waiters
// by LISTEN on one more connection, if the pool allows three and no pooler is in between. Otherwise
// one of the two connections polls for all waiters. In SQLite a store uses one connection to write
// and up to eight to read.
//
// From its first renewal until a TTL, and half a minute at least, after its last one, a store keeps one connection
// of a pool that has a limit of four or more, so that a program that uses all others loses no lock. With a smaller
// pool, and before, a renewal waits like any other call. A pool of several stores needs that many connections more.
//
// Only the clock of the database counts. With SQLite that is the wall clock of the machine: a
// step forward ends locks early, which the fencing token survives; a step back ends them late.
//
// An SQLite file must be on a local disk, because locking is broken in many network file
// systems, and must not be deleted while a process uses it.
package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/places"
	"github.com/dlock-go/dlock/sqllock/internal/set"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Options configure a Store.
type Options struct {
	// Dialect is the kind of database. There is no default.
	Dialect Dialect

	// Scheme says how a lock is kept; default [Row].
	Scheme Scheme

	// TablePrefix starts the names of the store's tables: letters, digits and underscores, at
	// most 40. Stores with different prefixes share no locks, unless these differ in case only. Default [DefaultTablePrefix].
	TablePrefix string
}

// DefaultTablePrefix is what the names of the tables start with.
const DefaultTablePrefix = sqldb.DefaultTablePrefix

// Store keeps locks in a database. Besides driver.Store it implements driver.Watcher,
// driver.BatchAcquirer, driver.Downgrader, driver.Lister, driver.Breaker and driver.Diagnoser.
// It is safe for concurrent use.
type Store struct {
	db         *sql.DB
	owned      *sql.DB         // a pool that Close closes; nil if it is the caller's
	location   driver.Location // of a store that Open made
	path       string          // of the SQLite file that Open opened; may be empty
	file       string          // the SQLite file as the database knows it, the same as path before; may be empty
	facts      *sqldb.Facts
	dialect    *dialect
	tables     *sqldb.Tables
	scheme     Scheme
	statements *statement.Set

	writing    chan struct{}         // holds an element for each writer
	reading    chan struct{}         // holds an element for each reader
	renewing   chan struct{}         // holds an element for each renewal that is not a writer
	reserve    *reserve              // the connection for renewals
	batches    batch.Queue           // jobs that wait to write
	refused    set.Set[string]       // names whose last attempt was refused
	downgraded set.Set[driver.Owner] // whose exclusive locks became shared ones, until they release them
	busy       atomic.Pointer[error] // why calls had to be tried again; nil after a call that succeeded
	places     places.Recent
	waiters    waiters

	attempts *attempts.Log // attempts that may be carried out late

	closing chan struct{}   // is closed to end the background work
	ctx     context.Context // of the background work; ends soon after closing
	cancel  context.CancelFunc
	work    sync.WaitGroup
	closed  atomic.Bool
}

// New returns a store in db. It creates the tables that are missing; see [Schema] for creating
// them by hand. The store respects the limits of db's pool, needs no more than one connection and
// never closes db. The program must not change the connections' settings, such as autocommit.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	return newStore(ctx, db, cmp.Or(opts, &Options{}), "")
}

func newStore(ctx context.Context, db *sql.DB, opts *Options, path string) (*Store, error) {
	facts, tables, err := sqldb.Configure(opts.Dialect, opts.TablePrefix)
	if err = cmp.Or(err, schemes.Check(int(opts.Scheme))); err != nil {
		return nil, err
	}
	dialect := dialects[opts.Dialect]
	s := &Store{
		db: db, path: path, file: path, facts: facts, dialect: dialect, tables: tables, scheme: opts.Scheme,
		statements: statement.NewSet(facts, tables),
		closing:    make(chan struct{}),
		writing:    make(chan struct{}, dialect.writers),
		renewing:   make(chan struct{}, dialect.renewers),
		waiters: waiters{unpublishNow: make(chan struct{}, 1),
			PollGroup: sqldb.NewPollGroup(func(name string, _ *waiter) any { return name })},
	}
	s.reserve = newReserve()
	s.refused.Max, s.batches.BlockedNames.Max = maxHints, maxHints
	s.batches.Writing, s.batches.Alone, s.batches.Batch = s.writing, s.runAlone, s.runBatch
	if dialect.blockedLimit < busyLimit {
		s.batches.IsBlocked, s.batches.Limit, s.batches.Blocked = s.isRetryable, busyLimit, make(chan struct{}, 1)
	}
	s.attempts = attempts.New(s.undo)
	s.reading = s.writing
	if dialect.readers > 0 {
		s.reading = make(chan struct{}, dialect.readers)
	}
	// The program may lack the right to create tables, so nothing is written
	// where they exist. If many processes start at once, one of them creates the tables.
	missing := func(err error) bool { return s.facts.Classify(err).Missing || errors.Is(err, sql.ErrNoRows) }
	if err = s.open(ctx); missing(err) {
		err = s.withConn(ctx, s.writing, nil, "create the tables", func() error {
			if err := s.prepare(ctx); !missing(err) {
				return err
			}
			return s.inUnguardedTx(ctx, nil, func(run statement.Runner) error { return run.CreateTables(ctx, s.facts, s.tables) })
		})
		if err == nil {
			err = s.open(ctx)
		}
	}
	if err == nil && opts.Dialect == SQLite {
		if err = s.read(ctx, "open", func() error { return s.checkFile(ctx) }); err != nil {
			err = errors.Join(err, s.statements.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work.Go(func() { sqldb.RunJanitor(s.closing, true, s.clean) })
	return s, nil
}

// open fails if the server cannot be used or a table is missing.
func (s *Store) open(ctx context.Context) error {
	err := s.read(ctx, "open", func() error { return s.prepare(ctx) })
	if err != nil {
		return errors.Join(err, s.statements.Close())
	}
	return nil
}

// prepare is open for one attempt.
func (s *Store) prepare(ctx context.Context) (err error) {
	if s.dialect.check != nil {
		err = s.dialect.check(ctx, s.db, s.tables)
	}
	if err == nil && (s.dialect.preparesAll || s.dialect.prepares != nil) {
		err = s.statements.Prepare(ctx, s.db, s.dialect.prepares...)
	}
	if err == nil {
		_, err = s.run().ReadFloor(ctx)
	}
	return err
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:           s.facts.String(),
		Reaction:        s.dialect.reaction,
		Fencing:         driver.FencingStrong,
		TokenStep:       tokenStep,
		Fair:            true,
		Shared:          true,
		Limits:          true,
		WatchesExpiry:   true,
		MinTTL:          10 * time.Millisecond,
		Granularity:     2 * time.Millisecond, // one that millis adds, one that is rounded away
		SurvivesRestart: true,
		OneMachine:      s.dialect.oneMachine,
	}
}

// maxHints bounds a set of names that the store may forget.
const maxHints = 10_000

// closeGrace is how long Close lets transactions and background work go on that have begun.
const closeGrace = 200 * time.Millisecond

// Close implements driver.Store. It ends the background work and leaves the *sql.DB of New
// open.
func (s *Store) Close() (err error) {
	if s.closed.Swap(true) {
		return nil
	}
	if s.owned != nil {
		defer func() { _ = s.owned.Close() }() // its error says that the server has ended an idle connection
	}
	s.waiters.close()
	close(s.closing)
	// A call may wait for a row without an end, and a transaction for its answer; see inUnguardedTx.
	ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
	defer cancel()
	// A statement that is interrupted costs its connection, so it may end.
	timer := time.AfterFunc(closeGrace, s.cancel)
	s.work.Wait()
	drain(ctx, s.writing) // what is being written ends first
	timer.Stop()
	s.cancel()
	err = s.attempts.Close()
	for _, limit := range []chan struct{}{s.writing, s.reading, s.renewing} {
		drain(ctx, limit)
	}
	s.reserve.close(ctx)
	if failed, _ := detach.Call(ctx, detach.Go, s.statements.Close); failed != nil {
		err = errors.Join(err, fmt.Errorf("close: %w", failed))
	}
	return err
}

// drain waits until no call is in limit, or ctx ends. Calls that come later find the store closed.
func drain(ctx context.Context, limit chan struct{}) {
	for range cap(limit) {
		select {
		case limit <- struct{}{}:
			defer func() { <-limit }()
		case <-ctx.Done():
		}
	}
}
