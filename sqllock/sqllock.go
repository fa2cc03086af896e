// Package sqllock keeps locks in a database that is reached through
// database/sql. The program brings the driver; this package requires none.
//
// SQLite makes a lock between the processes of one machine with no server at
// all:
//
//	db, err := sql.Open("sqlite", sqllock.SQLiteDSN("/var/lib/app/locks.db")) // modernc.org/sqlite
//	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
//	client := dlock.New(store, nil)
//
// MySQL, MariaDB and PostgreSQL make one between machines, in a database that
// the program may already have:
//
//	db, err := sql.Open("pgx", "postgres://app@db/app") // github.com/jackc/pgx/v5/stdlib
//	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.Postgres})
//
// A store uses two of the pool's connections at most, however many wait, and a
// third to renew locks while both are busy, if the pool allows it. With PostgreSQL
// those who wait are told by LISTEN, on one more, where the pool allows three and
// no pooler is in between; otherwise one of the two looks for all of them, every
// 2 ms while locks change hands, every 100 ms while none does.
//
// A lock is one row under its name. Time is the database's own, so the clocks
// of its clients do not matter. With SQLite that is the wall clock of the
// machine: a step forward ends locks early, which the fencing token survives;
// a step back ends them late.
//
// An SQLite file must be on a local disk, since locking over network file
// systems is broken in too many of them, and must not be deleted while
// somebody uses it. Diagnose looks for the first.
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
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Options configure a Store.
type Options struct {
	// Dialect says what kind of database it is. There is no default: two
	// databases can look alike and differ in what makes a statement atomic.
	Dialect Dialect

	// Scheme says how a lock is kept; default [Row]. Package sqlsession has the
	// schemes whose locks live as long as a connection.
	Scheme Scheme

	// TablePrefix starts the names of the store's tables: letters, digits and
	// underscores, at most 40. Stores with different prefixes know nothing of
	// each other. Default "dlock_".
	TablePrefix string
}

// DefaultTablePrefix is what the names of the tables start with.
const DefaultTablePrefix = sqldb.DefaultTablePrefix

// Store keeps locks in a database. It implements every extension of package
// driver, and all its methods may be called concurrently.
type Store struct {
	db      *sql.DB
	owned   *sql.DB // a pool that Close closes; nil if it is the caller's
	facts   *sqldb.Facts
	dialect *dialect
	tables  sqldb.Tables
	scheme  Scheme
	queries [statementCount]query

	writing  chan struct{} // holds one for each who writes
	reading  chan struct{} // holds one for each who reads
	renewing chan struct{} // holds one for each who renews while all writers are busy
	backlog  backlog       // what waits to write
	refused  nameSet       // names whose last attempt was refused
	placed   placed        // owners whose place in a queue is young
	watchers watchers

	attempts *attempts.Log // those that may be carried out late

	closing chan struct{}   // is closed to end the background work
	ctx     context.Context // of what it does; ends soon after
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
		db:       db,
		facts:    facts,
		dialect:  dialect,
		tables:   tables,
		scheme:   opts.Scheme,
		closing:  make(chan struct{}),
		writing:  make(chan struct{}, dialect.writers),
		renewing: make(chan struct{}, dialect.renewers),
		watchers: newWatchers(),
	}
	for i, text := range dialect.statements() {
		s.queries[i].Query = facts.Bind(tables.Expand(facts.Now, text))
	}
	s.attempts = attempts.New(s.undo)
	s.reading = s.writing
	if dialect.readers > 0 {
		s.reading = make(chan struct{}, dialect.readers)
	}
	// The program may lack the right to create tables, so nothing is written
	// where they exist.
	if err := s.open(ctx); err != nil {
		if !s.facts.Classify(err).Missing && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if err := s.create(ctx); err != nil {
			return nil, err
		}
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work.Go(s.sweep)
	return s, nil
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:           s.facts.String(),
		Handover:        s.dialect.handover,
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

// Close implements driver.Store. It ends the background work and leaves the
// *sql.DB open.
func (s *Store) Close() (err error) {
	if s.closed.Swap(true) {
		return nil
	}
	if s.owned != nil {
		defer func() { err = errors.Join(err, s.owned.Close()) }()
	}
	s.watchers.close()
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
	closed := make(chan error, 1)
	go func() { closed <- s.closeStatements() }()
	select {
	case err := <-closed:
		return errors.Join(undone, err)
	case <-time.After(backgroundLimit): // for the answer to a transaction that was left, see finish
		return undone
	}
}

// occupy takes all slots, when whoever used one is done, until leave is called.
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

// create makes the tables that are missing.
func (s *Store) create(ctx context.Context) error {
	return s.read(ctx, "create the tables", func() error {
		return s.inTx(ctx, func(run runner) error {
			for _, text := range s.dialect.schema {
				if _, err := run.tx.ExecContext(ctx, s.tables.Expand(s.facts.Now, text)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// open looks whether the server can be used and the tables are there.
func (s *Store) open(ctx context.Context) error {
	if s.dialect.open != nil {
		if err := s.read(ctx, "open", func() error { return s.dialect.open(ctx, s.db, s.tables) }); err != nil {
			return err
		}
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	var least int64
	err := s.read(ctx, "open", func() error { return s.each().one(ctx, floor, nil, &least) })
	if err != nil {
		return errors.Join(err, s.closeStatements())
	}
	return nil
}

func (s *Store) prepare(ctx context.Context) error {
	if !s.dialect.prepares {
		return nil
	}
	for i := range s.queries {
		q := &s.queries[i]
		if q.Text == "" {
			continue
		}
		err := s.read(ctx, "open", func() (err error) {
			q.stmt, err = s.db.PrepareContext(ctx, q.Text)
			return err
		})
		if err != nil {
			return errors.Join(err, s.closeStatements())
		}
	}
	return nil
}

func (s *Store) closeStatements() error {
	var errs []error
	for i := range s.queries {
		if q := &s.queries[i]; q.stmt != nil {
			errs = append(errs, q.stmt.Close())
			q.stmt = nil
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
