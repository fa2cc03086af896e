package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// callLimit is how long a statement may take. After it the connection counts as
// lost, and so do its locks.
const callLimit = 5 * time.Second

var (
	errLinkGone  = errors.New("the connection that the lock is on is gone")
	errPoolInUse = errors.New("the pool has no connection left")
)

// link is a connection that locks are on. Statements on it are not cut off when
// a caller has no more time, because that would close it and lose every lock on
// it: they go on in the background and only the caller leaves.
type link struct {
	conn *sql.Conn
	id   string // what the server calls the session

	turn   chan struct{} // holds one element while somebody uses it
	ctx    context.Context
	cancel context.CancelFunc
	began  atomic.Int64 // when the statement under way was sent; zero if there is none
	proven atomic.Int64 // when a statement that was answered was sent
	dead   atomic.Bool

	// Of Session:
	acquire, draw, release, look *sql.Stmt
	shift                        uint64 // added to the tokens
}

func newLink(conn *sql.Conn) *link {
	l := &link{conn: conn, turn: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// enter waits until nobody uses the link. What ends the wait has changed nothing.
func (l *link) enter(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	default:
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.ctx.Done():
			return errLinkGone
		}
	}
	if l.dead.Load() {
		l.leave()
		return errLinkGone
	}
	return nil
}

func (l *link) leave() { <-l.turn }

// call sends a statement. The link must have been entered.
func (l *link) call(send func(context.Context) error) error {
	sent := time.Now().UnixNano()
	l.began.Store(sent)
	err := send(l.ctx)
	l.began.Store(0)
	if err == nil {
		l.proven.Store(sent)
	}
	return err
}

// discard closes the connection for good. It waits for the statement under way.
func (l *link) discard() {
	l.dead.Store(true)
	l.cancel()
	_ = l.conn.Raw(endConn)
	_ = l.conn.Close() // says that it is closed already
}

// giveBack returns a connection without locks to the pool.
func (l *link) giveBack() {
	l.dead.Store(true)
	_ = l.conn.Close() // a pool that is closed has closed it
	l.cancel()
}

// perform runs job, which uses a link that was entered, and leaves the link. If
// the caller's time is over before, the job goes on without the caller.
func (s *BoundStore) perform(ctx context.Context, l *link, job func() error) error {
	if ctx.Done() == nil {
		defer l.leave()
		return job()
	}
	outcome := make(chan error, 1)
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Done()
		err := job()
		l.leave()
		outcome <- err
	})
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connection takes a connection from the pool.
func (s *BoundStore) connection(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err == nil {
		return conn, nil
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

// adopt makes the keeper look after a link.
func (s *BoundStore) adopt(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.links[l] = struct{}{}
	s.hurryLocked(time.Now().Add(probeEvery))
	return nil
}

func (s *BoundStore) drop(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(l)
}

func (s *BoundStore) dropLocked(l *link) {
	delete(s.links, l)
	if s.shared == l {
		s.shared = nil
	}
}

// takeBonds returns the locks of a link, and the attempts on it.
func (s *BoundStore) takeBonds(l *link) (bonds []*bond) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bonds {
		if b.link == l {
			bonds = append(bonds, b)
		}
	}
	return bonds
}

// lose declares a link dead, and with it all its locks and attempts. It may be called while
// a statement is under way, from what s.work counts.
func (s *BoundStore) lose(l *link) {
	if l.dead.Swap(true) {
		return
	}
	l.cancel()
	s.drop(l)
	for _, b := range s.takeBonds(l) {
		var report func()
		s.mu.Lock()
		if b.phase == held {
			report = b.lost
		}
		b.phase = leaving
		s.mu.Unlock()
		if report != nil {
			report()
		}
		s.settle(b)
	}
	s.work.Go(l.discard) // which waits for the statement under way
}
