package sqlsession

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// callLimit is how long a statement may take. After it the connection counts as
// lost, and so do its locks.
const callLimit = 5 * time.Second

var (
	errConnGone  = errors.New("the connection that the lock is on is gone")
	errPoolInUse = errors.New("the pool has no connection left")
)

// conn is a connection that locks are on. Statements on it are not cut off when
// a caller has no more time, because that would close it and lose every lock on
// it: they go on in the background and only the caller leaves.
type conn struct {
	raw *sql.Conn
	id  string // what the server calls the session
	// guard tells the session from later ones that get the same id. See server.findSession.
	guard string

	turn   chan struct{} // holds one element while somebody uses it
	ctx    context.Context
	cancel context.CancelFunc
	began  atomic.Int64 // when the statement under way was sent; zero if there is none
	proven atomic.Int64 // when a statement that was answered was sent
	dead   atomic.Bool
	ending atomic.Pointer[error] // why its session could not be ended so far

	// Of Session:
	acquire, draw, release, look *sql.Stmt
	shift                        uint64 // added to the tokens
}

func newConn(raw *sql.Conn) *conn {
	c := &conn{raw: raw, turn: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// enter waits until nobody uses the conn. What ends the wait has changed nothing.
func (c *conn) enter(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return errConnGone
		}
	}
	if c.dead.Load() {
		c.leave()
		return errConnGone
	}
	return nil
}

func (c *conn) leave() { <-c.turn }

// call sends a statement. The conn must have been entered.
func (c *conn) call(send func(context.Context) error) error {
	sent := time.Now().UnixNano()
	c.began.Store(sent)
	err := send(c.ctx)
	c.began.Store(0)
	if err == nil {
		c.proven.Store(sent)
	}
	return err
}

// discard closes the connection for good. It waits for the statement under way.
func (c *conn) discard() {
	c.dead.Store(true)
	c.cancel()
	_ = c.raw.Raw(sqldb.CloseConn)
	_ = c.raw.Close() // says that it is closed already
}

// giveBack returns a connection without locks to the pool.
func (c *conn) giveBack() {
	c.dead.Store(true)
	_ = c.raw.Close() // a pool that is closed has closed it
	c.cancel()
}

// perform runs job, which uses a connection that was entered, and leaves the connection.
// If ctx ends before, perform returns and the job goes on.
func (s *Store) perform(ctx context.Context, c *conn, job func() error) error {
	err, left := detach.Call(ctx, s.start, func() error {
		defer c.leave()
		return job()
	})
	if left != nil {
		return left
	}
	return err
}

// start runs f in the background. Close waits for it.
func (s *Store) start(f func()) {
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Done()
		f()
	})
}

// connection takes a connection from the pool.
func (s *Store) connection(ctx context.Context) (*sql.Conn, error) {
	raw, err := s.db.Conn(ctx)
	if err == nil {
		return raw, nil
	}
	if stats := s.db.Stats(); ctx.Err() != nil && stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		need := "session needs one for itself"
		if s.scheme == ForUpdate {
			need = "forupdate needs one per lock"
		}
		return nil, fmt.Errorf("%w: all %d connections of the pool are in use; %s: %w", errPoolInUse, stats.MaxOpenConnections, need, err)
	}
	return nil, err
}

// adopt makes the monitor watch a conn, and the lock that was acquired on it, if any.
func (s *Store) adopt(c *conn, h *heldLock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.conns[c] = struct{}{}
	if h != nil {
		h.conn = c
	}
	s.checks.NoLaterThan(time.Now().Add(probeEvery))
	return nil
}

func (s *Store) drop(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(c)
}

func (s *Store) dropLocked(c *conn) {
	delete(s.conns, c)
	if s.shared == c {
		s.shared = nil
	}
}

// locksOn returns the locks of a conn, and the attempts on it.
func (s *Store) locksOn(c *conn) (locks []*heldLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.locks {
		if h.conn == c {
			locks = append(locks, h)
		}
	}
	return locks
}

// lose declares a conn dead and reports the loss of its locks. The store remembers its locks
// and attempts until the server has ended the session. lose may be called while a statement
// is under way, from what s.work counts.
func (s *Store) lose(c *conn) {
	if c.dead.Swap(true) {
		return
	}
	c.cancel()
	s.drop(c)
	locks := s.locksOn(c)
	for _, h := range locks {
		var report func()
		s.mu.Lock()
		if h.phase == held {
			report = h.lost
		}
		h.phase = leaving
		s.mu.Unlock()
		if report != nil {
			report()
		}
	}
	s.work.Go(c.discard) // which waits for the statement under way
	if len(locks) > 0 {
		s.work.Go(func() { s.endLost(c, locks) })
	}
}
