package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/workerpool"
)

// BoundStore keeps locks that live no longer than a connection: the schemes
// [ForUpdate] and [Session]. Whoever dies, or loses the connection, gives up its
// locks at once, and a holder that is merely paused keeps them.
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
type BoundStore struct {
	db      *sql.DB
	dialect boundDialect
	scheme  Scheme
	server  *boundServer
	domain  string // what the hash of a name begins with

	workers  *workerpool.Pool
	opening  chan struct{} // holds one element while somebody opens the shared link
	seats    chan struct{} // holds one for each attempt that has a connection of its own
	kick     chan struct{} // asks the keeper to look
	watchers boundWatchers
	sweeps   bool // ForUpdate: to sweep was due when the store was opened
	sought   bool // whether it could be found out if there is a pooler

	mu     sync.Mutex
	bonds  map[string]*bond
	links  map[*link]struct{}
	shared *link     // that all locks of Session are on; nil if there is none
	patrol time.Time // when the keeper looks next
	closed bool

	ctx    context.Context // of the background work; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

const (
	// boundSeats is how many attempts of ForUpdate have a connection at a time.
	// With the one of the poller a store in which everybody waits needs three.
	boundSeats = 2
	// idleWorkers is how many goroutines that make calls stay for the next.
	idleWorkers = 4
)

// NewBound returns a store of one of the schemes [ForUpdate] and [Session] in
// db. It creates what is missing of its tables; see [BoundSchema] for creating
// them by hand.
//
// It refuses what cannot hold locks: a pooler that gives every transaction
// another connection (PgBouncer in transaction mode), and a replica. With a pool
// of a single connection the first is noticed only later, by the lock being
// lost.
//
// The store respects the limits of db's pool and never closes db.
func NewBound(ctx context.Context, db *sql.DB, opts *Options) (*BoundStore, error) {
	if opts == nil || opts.Dialect == nil {
		return nil, errors.New("option Dialect is not set")
	}
	if !opts.Scheme.bound() {
		return nil, fmt.Errorf("%w: NewBound is for the schemes forupdate and session; use New for %v", driver.ErrUnsupported, opts.Scheme)
	}
	dialect, ok := opts.Dialect.(boundDialect)
	if !ok {
		return nil, fmt.Errorf("%w: scheme %v on %v: it has no locks that belong to a connection and no transactions that lock a row; use scheme row",
			driver.ErrUnsupported, opts.Scheme, opts.Dialect)
	}
	tables, err := newTables(opts.TablePrefix)
	if err != nil {
		return nil, err
	}
	s := &BoundStore{
		db:       db,
		dialect:  dialect,
		scheme:   opts.Scheme,
		workers:  workerpool.New(idleWorkers),
		opening:  make(chan struct{}, 1),
		seats:    make(chan struct{}, boundSeats),
		kick:     make(chan struct{}, 1),
		watchers: newBoundWatchers(),
		bonds:    make(map[string]*bond),
		links:    make(map[*link]struct{}),
	}
	if err := s.open(ctx, tables); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.work.Go(s.keep)
	if s.scheme == ForUpdate {
		s.work.Go(s.sweepBound)
	}
	return s, nil
}

// lockKey is how the server knows a lock.
type lockKey struct {
	row  string // the key of its row
	mark any    // the key of its GET_LOCK or advisory lock
}

func (s *BoundStore) key(name string) lockKey {
	sum := sha256.Sum256([]byte(s.domain + name))
	return lockKey{row: hex.EncodeToString(sum[:]), mark: s.dialect.mark(sum)}
}

// Traits implements driver.Store.
func (s *BoundStore) Traits() driver.Traits {
	return driver.Traits{
		Store:         s.dialect.String(),
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
func (s *BoundStore) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	var links []*link
	for l := range s.links {
		links = append(links, l)
	}
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.watchers.close()
	s.cancel()
	var all sync.WaitGroup
	for _, l := range links {
		all.Go(func() { s.finish(l) })
	}
	all.Wait()
	s.awaitWork()
	s.workers.Close()
	return nil
}

// awaitWork waits for all calls, but not for those that the server never answers.
func (s *BoundStore) awaitWork() {
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

// finish gives up everything on a link and the link itself.
func (s *BoundStore) finish(l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := l.enter(ctx); err != nil {
		s.lose(l)
		return
	}
	defer l.leave()
	defer time.AfterFunc(callLimit, l.cancel).Stop() // the keeper, which would do that, has ended
	// The server does the same when the connection is closed, which is next, but
	// takes its time.
	_ = l.call(func(ctx context.Context) error { return execAll(ctx, l.conn, s.server.releaseAll) })
	s.drop(l)
	for _, b := range s.takeBonds(l) {
		s.settle(b)
	}
	l.discard()
}

// begin counts a call, which ends with s.work.Done. It refuses those that are not
// worth making.
func (s *BoundStore) begin(ctx context.Context, op string) error {
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
func (s *BoundStore) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// fail turns what the database said into what the contract says.
func (s *BoundStore) fail(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnsupported):
		return err
	case ctx.Err() != nil && !errors.Is(err, errPoolInUse):
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	return failure{kind: s.dialect.classify(err).kind}.describe(op, err)
}
