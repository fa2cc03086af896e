// Package sqllock keeps locks in a database that is reached through
// database/sql. The program brings the driver; this package requires none.
//
// SQLite makes a lock between the processes of one machine without a server:
//
//	import _ "modernc.org/sqlite"
//
//	store, err := sqllock.Open(ctx, "sqlite:///var/lib/app/locks.db", nil)
//	client := dlock.New(store, nil)
//
// MySQL, MariaDB and PostgreSQL make a lock between machines, in a database that
// the program may already have:
//
//	db, err := sql.Open("pgx", "postgres://app@db/app") // github.com/jackc/pgx/v5/stdlib
//	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.Postgres})
//
// A lock is one row under its name, and expires. Package sqlsession has locks that live as
// long as a connection.
//
// A store uses two of the pool's connections at most, however many callers wait, and a
// third to renew locks while both are busy, if the pool allows it. PostgreSQL notifies
// waiters by LISTEN on one more connection, if the pool allows three and no pooler is in
// between. Otherwise one of the two connections polls for all waiters, every 2 ms while
// locks change hands, every 100 ms while none does.
//
// Time is the database's own, so the clocks of its clients do not matter. With SQLite that
// is the wall clock of the machine: a step forward ends locks early, which the fencing
// token survives; a step back ends them late.
//
// An SQLite file must be on a local disk, because locking is broken in many network file
// systems. Diagnose checks that. The file must not be deleted while a process uses it.
package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/attempts"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/places"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Options configure a Store.
type Options struct {
	// Dialect is the kind of database. There is no default: two databases can look
	// alike and differ in what makes a statement atomic.
	Dialect Dialect

	// Scheme says how a lock is kept; default [Row]. Package sqlsession has the
	// schemes whose locks live as long as a connection.
	Scheme Scheme

	// TablePrefix starts the names of the store's tables: letters, digits and
	// underscores, at most 40. Stores with different prefixes share no locks.
	// Default "dlock_".
	TablePrefix string
}

// DefaultTablePrefix is what the names of the tables start with.
const DefaultTablePrefix = sqldb.DefaultTablePrefix

// Store keeps locks in a database. Besides driver.Store it implements driver.Watcher,
// driver.BatchAcquirer, driver.Lister, driver.Breaker and driver.Diagnoser. It is safe for
// concurrent use.
type Store struct {
	db         *sql.DB
	owned      *sql.DB // a pool that Close closes; nil if it is the caller's
	path       string  // of the SQLite file that Open opened; may be empty
	facts      *sqldb.Facts
	dialect    *dialect
	tables     sqldb.Tables
	scheme     Scheme
	statements *statement.Set

	writing  chan struct{}         // holds an element for each writer
	reading  chan struct{}         // holds an element for each reader
	renewing chan struct{}         // holds an element for each renewal that is not a writer
	batches  batch.Queue           // jobs that wait to write
	refused  names                 // names whose last attempt was refused
	busy     atomic.Pointer[error] // why calls had to be tried again; nil after a call that succeeded
	places   places.Recent
	waiters  waiters

	attempts *attempts.Log // attempts that may be carried out late

	closing chan struct{}   // is closed to end the background work
	ctx     context.Context // of the background work; ends soon after
	cancel  context.CancelFunc
	work    sync.WaitGroup
	closed  atomic.Bool
}

// New returns a store in db and creates its tables where they are missing; see
// [Schema] for creating them by hand.
//
// The store respects the limits of db's pool and needs no more than one
// connection. It never closes db: that stays with the caller, after Close.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	return newStore(ctx, db, opts, "")
}

func newStore(ctx context.Context, db *sql.DB, opts *Options, path string) (*Store, error) {
	facts, err := sqldb.FactsOf(opts.Dialect)
	if err != nil {
		return nil, err
	}
	tables, err := sqldb.NewTables(opts.TablePrefix)
	if err != nil {
		return nil, err
	}
	dialect := dialects[opts.Dialect]
	s := &Store{
		db: db, path: path, facts: facts, dialect: dialect, tables: tables, scheme: opts.Scheme,
		statements: statement.NewSet(facts, &tables),
		closing:    make(chan struct{}),
		writing:    make(chan struct{}, dialect.writers),
		renewing:   make(chan struct{}, dialect.renewers),
		waiters:    newWaiters(),
	}
	s.batches.Writing, s.batches.Alone, s.batches.Together = s.writing, s.alone, s.together
	s.attempts = attempts.New(s.undo)
	s.reading = s.writing
	if dialect.readers > 0 {
		s.reading = make(chan struct{}, dialect.readers)
	}
	// The program may lack the right to create tables, so nothing is written
	// where they exist.
	err = s.open(ctx)
	if s.facts.Classify(err).Missing || errors.Is(err, sql.ErrNoRows) {
		if err = s.create(ctx); err == nil {
			err = s.open(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work.Go(func() { sqldb.RunJanitor(s.closing, true, s.clean) })
	return s, nil
}

func (s *Store) create(ctx context.Context) error {
	return s.read(ctx, "create the tables", func() error {
		return s.inTx(ctx, func(run statement.Runner) error { return run.CreateTables(ctx, s.facts, &s.tables) })
	})
}

// open fails if the server cannot be used or a table is missing.
func (s *Store) open(ctx context.Context) error {
	err := s.read(ctx, "open", func() error {
		err := s.dialect.check(ctx, s.db, &s.tables)
		if err == nil && s.dialect.prepares {
			err = s.statements.Prepare(ctx, s.db)
		}
		if err == nil {
			var floor int64
			err = s.run().One(ctx, statement.Floor, nil, &floor)
		}
		return err
	})
	if err != nil {
		return errors.Join(err, s.statements.Close())
	}
	return nil
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:           s.facts.String(),
		Reaction:        s.dialect.handover,
		Fencing:         driver.FencingStrong,
		Fair:            true,
		WatchesExpiry:   true,
		MinTTL:          10 * time.Millisecond,
		Granularity:     2 * time.Millisecond, // one that millis adds, one that is rounded away
		SurvivesRestart: true,
		OneMachine:      s.dialect.oneMachine,
	}
}

// closeGrace is how long Close lets background work go on that has begun.
const closeGrace = 200 * time.Millisecond

// Close implements driver.Store. It ends the background work and leaves the *sql.DB of New
// open.
func (s *Store) Close() (err error) {
	if s.closed.Swap(true) {
		return nil
	}
	if s.owned != nil {
		defer func() { err = errors.Join(err, s.owned.Close()) }()
	}
	s.waiters.close()
	close(s.closing)
	// A statement that is interrupted costs its connection, so it may end.
	timer := time.AfterFunc(closeGrace, s.cancel)
	s.work.Wait()
	timer.Stop()
	s.cancel()
	occupy(s.writing)() // what is being written ends first
	undone := s.attempts.Close()
	defer occupy(s.writing)()
	if s.reading != s.writing {
		defer occupy(s.reading)()
	}
	defer occupy(s.renewing)()
	// A statement may wait for the answer to a transaction that was left; see finish.
	ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
	defer cancel()
	if failed, _ := detach.Call(ctx, detach.Go, s.statements.Close); failed != nil {
		undone = errors.Join(undone, fmt.Errorf("close: %w", failed))
	}
	return undone
}

// occupy takes all slots, when their users are done, until leave is called.
func occupy(slots chan struct{}) (leave func()) {
	for range cap(slots) {
		slots <- struct{}{}
	}
	return func() {
		for range cap(slots) {
			<-slots
		}
	}
}
