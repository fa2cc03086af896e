// Package sqlsession keeps locks that live exactly as long as a connection to a MySQL,
// MariaDB or PostgreSQL server. Package sqllock keeps locks in rows that expire. The program
// brings the driver of database/sql; this package requires none.
//
//	db, err := sql.Open("pgx", "postgres://app@db/app") // github.com/jackc/pgx/v5/stdlib
//	store, err := sqlsession.New(ctx, db, &sqlsession.Options{Dialect: sqlsession.Postgres})
package sqlsession

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/workerpool"
)

// Options configure a Store.
type Options struct {
	// Dialect is the kind of database. There is no default.
	Dialect Dialect

	// Scheme says how a connection holds a lock; default [Session].
	Scheme Scheme

	// TablePrefix starts the names of the store's tables: letters, digits and underscores, at
	// most 40. Stores with different prefixes share no locks, unless these differ in case only. Default "dlock_".
	TablePrefix string

	// MaxConns limits the pool that [Open] opens, and with [ForUpdate] how many locks the
	// store can hold; default 4 with [Session], no limit with ForUpdate.
	MaxConns int
}

// Store keeps locks that live no longer than a connection. If a holder dies or loses the
// connection, the server frees its locks at once. A holder that is merely paused keeps them.
// Besides driver.Store it implements driver.Watcher, driver.Diagnoser and driver.Downgrader. It is
// safe for concurrent use.
//
// Session needs one connection of the pool for as long as the store is open. ForUpdate needs one for
// each lock that is held, and for a moment two more for attempts and one to poll. Both need one more
// while they end the session of a lost connection. Session on PostgreSQL has shared locks.
//
// If the holder neither renews nor releases a lock, the store releases it when its TTL has
// passed by the clock of this process. No clock of a server counts.
//
// The server knows locks by the hash of their name. With Session on PostgreSQL the hash has
// 64 bits: two given names have the same hash, and block each other, with a probability of
// 2^-64.
type Store struct {
	db       *sql.DB
	owned    *sql.DB         // a pool that Close closes; nil if it is the caller's
	location driver.Location // of a store that Open made
	facts    *sqldb.Facts
	tables   *sqldb.Tables
	dialect  *dialect
	scheme   Scheme
	server   *server
	domain   string // what the hash of a name begins with

	workers       *workerpool.Pool
	opening       chan struct{} // holds an element while a caller opens the main conn
	slots         chan struct{} // holds an element for each attempt that has a connection of its own
	alarm         *alarm.Alarm  // when to call monitor
	waiters       sqldb.PollGroup[*waiter]
	janitorFirst  bool // ForUpdate: the janitor was due when the store was opened
	poolerChecked bool // the pool had the two connections that it takes to find a pooler

	mu     sync.Mutex
	locks  map[string][]*heldLock // by name; several only if all are shared
	places map[string]*places     // of exclusive waiters, by name
	conns  map[*conn]struct{}
	main   *conn // holds all locks of Session; nil if it has to be opened
	closed bool

	ctx    context.Context // of the background work; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

const (
	// rowAttempts is how many attempts of ForUpdate have a connection at a time.
	// The poller needs one more.
	rowAttempts = 2
	// idleWorkers is how many goroutines that make calls stay for the next call.
	idleWorkers = 4
)

// New returns a store in db. It creates the tables that are missing; see [Schema] for creating
// them by hand. The store respects the limits of db's pool and never closes db. The program must not
// change the connections' settings, such as autocommit.
//
// New rejects servers that cannot hold locks: a replica, and a pooler that gives every
// transaction another connection (PgBouncer in transaction mode). With a pool of one
// connection it does not notice the pooler, and locks are lost later.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	opts = cmp.Or(opts, &Options{})
	facts, dialect, tables, err := configure(opts.Dialect, opts.TablePrefix)
	if err = cmp.Or(err, schemes.Check(int(opts.Scheme))); err != nil {
		return nil, err
	}
	s := &Store{
		db: db, facts: facts, tables: tables, dialect: dialect, scheme: opts.Scheme,
		workers: workerpool.New(idleWorkers), alarm: alarm.New(),
		waiters: sqldb.NewPollGroup(func(_ string, w *waiter) any { return w.key.server }),
		opening: make(chan struct{}, 1), slots: make(chan struct{}, rowAttempts),
		locks: make(map[string][]*heldLock), places: make(map[string]*places), conns: make(map[*conn]struct{}),
	}
	if err := s.open(ctx); err != nil {
		return nil, s.explain(ctx, "open", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.alarm.NoLaterThan(time.Now())
	s.work.Go(func() { s.alarm.Run(s.ctx, s.monitor) })
	if s.scheme == ForUpdate {
		s.work.Go(func() { sqldb.RunJanitor(s.ctx.Done(), s.janitorFirst, s.clean) })
	}
	return s, nil
}

// lockKey is how the server knows a lock.
type lockKey struct {
	row    string // the key of its row
	server any    // the key of its GET_LOCK or advisory lock
	place  any    // the key of the places of exclusive waiters; nil where locks are not shared
}

func (s *Store) key(name string) lockKey {
	sum := sha256.Sum256([]byte(s.domain + name))
	key := lockKey{row: hex.EncodeToString(sum[:]), server: s.dialect.keyOf(sum)}
	if s.dialect.placeOf != nil {
		key.place = s.dialect.placeOf(sum)
	}
	return key
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:         s.facts.String(),
		Fencing:       driver.FencingStrong,
		Shared:        s.offersShared(),
		WatchesExpiry: true,
		SessionBound:  true,
		ReportsLoss:   true,
		Reaction:      time.Millisecond,
		MinTTL:        10 * time.Millisecond,
		Granularity:   20 * time.Millisecond, // a call to the server after the TTL has passed
	}
}

// Close implements driver.Store. It releases all locks and leaves the *sql.DB of New open.
func (s *Store) Close() error {
	s.mu.Lock()
	closed, conns := s.closed, slices.Collect(maps.Keys(s.conns))
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.waiters.Lock()
	s.waiters.CloseLocked()
	s.waiters.Unlock()
	s.cancel()
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() { s.closeConn(c) })
	}
	all.Wait()
	// It waits for all calls, but not for a server that never answers.
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, _ = detach.Call(ctx, detach.Go, func() error { s.work.Wait(); return nil })
	s.workers.Close()
	if s.owned != nil {
		_ = s.owned.Close() // its error says that the server has ended an idle connection
	}
	return nil
}

// startCall counts a call, which ends with s.work.Done.
func (s *Store) startCall(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.work.Add(1)
	return nil
}

// untilClosed returns a context that also ends with the store.
func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
