// Package sqlsession keeps locks that live exactly as long as a connection to a MySQL,
// MariaDB or PostgreSQL server. The program brings the driver of database/sql; this package
// requires none.
//
//	db, err := sql.Open("pgx", "postgres://app@db/app") // github.com/jackc/pgx/v5/stdlib
//	store, err := sqlsession.New(ctx, db, &sqlsession.Options{Dialect: sqlsession.Postgres})
//
// Package sqllock keeps locks in rows that expire.
package sqlsession

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/workerpool"
)

// Options configure a Store.
type Options struct {
	// Dialect says what kind of database it is. There is no default: two
	// databases can look alike and differ in what makes a statement atomic.
	Dialect Dialect

	// Scheme says how a connection holds a lock; default [Session].
	Scheme Scheme

	// TablePrefix starts the names of the store's tables: letters, digits and
	// underscores, at most 40. Stores with different prefixes know nothing of
	// each other. Default "dlock_".
	TablePrefix string

	// MaxConns limits the pool that [Open] opens, and with [ForUpdate] how many locks the
	// store can hold; default 4 with [Session], no limit with ForUpdate.
	MaxConns int
}

// Store keeps locks that live no longer than a connection. If a holder dies, or loses the
// connection, the server frees its locks at once. A holder that is merely paused keeps them.
// Besides driver.Store it implements driver.Watcher, driver.Passer and driver.Diagnoser. It
// is safe for concurrent use.
//
// Session needs one connection of the pool for as long as the store is open,
// whatever number of locks there are. A pool that is limited to one connection
// has none left for the application, which then needs another pool. ForUpdate
// needs one connection for each lock that is held, and two more for a moment.
//
// A lock whose holder neither renews nor releases it is given up by the store
// itself when its TTL is over, in this process: no clock of a server counts.
//
// The server knows locks by the hash of their name. With Session on PostgreSQL
// the hash has 64 bits; two names of which the hashes are the same block each
// other, which two given names do with a probability of 2^-64.
type Store struct {
	db      *sql.DB
	owned   *sql.DB // a pool that Close closes; nil if it is the caller's
	facts   *sqldb.Facts
	dialect *dialect
	scheme  Scheme
	server  *server
	domain  string // what the hash of a name begins with

	workers  *workerpool.Pool
	opening  chan struct{} // holds one element while somebody opens the shared conn
	slots    chan struct{} // holds one for each attempt that has a connection of its own
	checks   *alarm.Alarm  // when to call monitor
	watchers watchers
	cleans   bool // ForUpdate: to sweep was due when the store was opened
	sought   bool // whether it could be found out if there is a pooler

	mu     sync.Mutex
	locks  map[string]*heldLock
	conns  map[*conn]struct{}
	shared *conn // that all locks of Session are on; nil if there is none
	closed bool

	ctx    context.Context // of the background work; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

const (
	// maxAttempts is how many attempts of ForUpdate have a connection at a time.
	// With the one of the poller a store in which everybody waits needs three.
	maxAttempts = 2
	// idleWorkers is how many goroutines that make calls stay for the next.
	idleWorkers = 4
)

// New returns a store in db. It creates what is missing of its tables; see [Schema] for
// creating them by hand.
//
// It refuses what cannot hold locks: a pooler that gives every transaction
// another connection (PgBouncer in transaction mode), and a replica. With a pool
// of a single connection the first is noticed only later, by the lock being
// lost.
//
// The store respects the limits of db's pool and never closes db.
func New(ctx context.Context, db *sql.DB, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	facts, err := sqldb.FactsOf(opts.Dialect)
	if err != nil {
		return nil, err
	}
	dialect := dialects[opts.Dialect]
	if dialect == nil {
		return nil, fmt.Errorf("%w: scheme %v on %v: it has no locks that belong to a connection and no transactions that lock a row; use scheme row",
			driver.ErrUnsupported, opts.Scheme, opts.Dialect)
	}
	tables, err := sqldb.NewTables(opts.TablePrefix)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db:       db,
		facts:    facts,
		dialect:  dialect,
		scheme:   opts.Scheme,
		workers:  workerpool.New(idleWorkers),
		opening:  make(chan struct{}, 1),
		slots:    make(chan struct{}, maxAttempts),
		checks:   alarm.New(),
		watchers: newWatchers(),
		locks:    make(map[string]*heldLock),
		conns:    make(map[*conn]struct{}),
	}
	if err := s.open(ctx, &tables); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.checks.NoLaterThan(time.Now())
	s.work.Go(func() { s.checks.Run(s.ctx, s.monitor) })
	if s.scheme == ForUpdate {
		s.work.Go(s.runJanitor)
	}
	return s, nil
}

// lockKey is how the server knows a lock.
type lockKey struct {
	row    string // the key of its row
	server any    // the key of its GET_LOCK or advisory lock
}

func (s *Store) key(name string) lockKey {
	sum := sha256.Sum256([]byte(s.domain + name))
	return lockKey{row: hex.EncodeToString(sum[:]), server: s.dialect.keyOf(sum)}
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:         s.facts.String(),
		Fencing:       driver.FencingStrong,
		WatchesExpiry: true,
		SessionBound:  true,
		ReportsLoss:   true,
		Handover:      time.Millisecond,
		MinTTL:        10 * time.Millisecond,
		Granularity:   20 * time.Millisecond, // a call to the server after the time is over
	}
}

// Close implements driver.Store. It releases all locks and leaves the *sql.DB
// open.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	var conns []*conn
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.watchers.close()
	s.cancel()
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() { s.finish(c) })
	}
	all.Wait()
	s.awaitWork()
	s.workers.Close()
	if s.owned != nil {
		return s.owned.Close()
	}
	return nil
}

// awaitWork waits for all calls, but not for those that the server never answers.
func (s *Store) awaitWork() {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	timer := time.NewTimer(callLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// finish gives up everything on a conn and the conn itself.
func (s *Store) finish(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := c.enter(ctx); err != nil {
		s.lose(c)
		s.endAtClose(c)
		return
	}
	defer c.leave()
	defer time.AfterFunc(callLimit, c.cancel).Stop() // the monitor, which would do that, has ended
	// The server does the same when the connection is closed, which is next, but
	// takes its time.
	err := c.call(func(ctx context.Context) error { return execAll(ctx, c.raw, s.server.releaseAll...) })
	s.drop(c)
	if err != nil {
		s.endAtClose(c)
	}
	for _, h := range s.locksOn(c) {
		s.settle(h, nil)
	}
	c.discard()
}

// endAtClose ends the session of a conn that does not answer, if the server answers others.
func (s *Store) endAtClose(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, _ = s.endSession(ctx, c) // the server ends it when it notices that the connection is gone
}

// begin counts a call, which ends with s.work.Done. It refuses those that are not
// worth making.
func (s *Store) begin(ctx context.Context, op string) error {
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

// untilClosed is a context that also ends with the store.
func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
