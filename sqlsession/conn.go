package sqlsession

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// callLimit is how long a statement may take before its connection counts as lost.
const callLimit = 5 * time.Second

var (
	errConnGone  = errors.New("the connection that the lock is on is gone")
	errPoolInUse = errors.New("the pool has no connection left")
)

// conn is a connection that holds locks. If the context of a caller ends, its statement goes
// on in the background: to interrupt it would close the connection and lose every lock on it.
type conn struct {
	raw *sql.Conn
	id  string // of the server's session
	// fingerprint tells the session from later ones that get the same id. See server.findSession.
	fingerprint string

	inUse    chan struct{} // holds an element while a caller uses the connection
	ctx      context.Context
	cancel   context.CancelFunc
	asked    atomic.Int64 // elapsed time when the statement under way was sent; zero if there is none
	answered atomic.Int64 // elapsed time when the last statement that was answered was sent
	dead     atomic.Bool
	returned atomic.Bool           // to the pool: the session belongs to the program again
	placed   atomic.Bool           // the server was asked on it for the places of a name; see places
	ending   atomic.Pointer[error] // why its session could not be ended so far

	// Of Session:
	stmts     [sessionStatements]*sql.Stmt
	announced bool   // see announceShared
	shift     uint64 // added to the tokens
}

func newConn(raw *sql.Conn) *conn {
	c := &conn{raw: raw, inUse: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

var started = time.Now().Add(-1) // so that no elapsed time is zero

// elapsed returns a positive count of nanoseconds, by a clock that cannot be set.
func elapsed(t time.Time) int64 { return int64(t.Sub(started)) }

// enter waits until no other caller uses the conn. If it fails, it has sent nothing.
func (c *conn) enter(ctx context.Context) error {
	select {
	case c.inUse <- struct{}{}:
	default:
		select {
		case c.inUse <- struct{}{}:
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

func (c *conn) leave() { <-c.inUse }

// call sends a statement. The conn must have been entered.
func (c *conn) call(send func(context.Context) error) error {
	sent := elapsed(time.Now())
	c.asked.Store(sent)
	err := send(c.ctx)
	c.asked.Store(0)
	if err == nil {
		c.answered.Store(sent)
	}
	return err
}

// discard closes the connection for good. It waits for the statement under way.
func (c *conn) discard() {
	c.dead.Store(true)
	c.cancel()
	sqldb.Discard(c.raw)
}

// giveBack returns a connection without locks to the pool.
func (c *conn) giveBack() {
	c.returned.Store(true)
	c.dead.Store(true)
	_ = c.raw.Close() // a pool that is closed has closed it
	c.cancel()
}

// use enters a conn and runs job on it as detached does. If the conn was lost, so were its locks:
// the error is driver.ErrNotHeld.
func (s *Store) use(ctx context.Context, c *conn, job func() error) error {
	switch err := c.enter(ctx); {
	case err == nil:
		return s.detached(ctx, c, job)
	case c.dead.Load():
		return driver.ErrNotHeld
	default:
		return err
	}
}

// detached runs job on a conn that was entered, and leaves the conn. If ctx ends first,
// detached returns and the job goes on.
func (s *Store) detached(ctx context.Context, c *conn, job func() error) error {
	err, left := detach.Call(ctx, s.start, func() error {
		defer c.leave()
		return job()
	})
	return cmp.Or(left, err)
}

// start runs f in the background. Close waits for it.
func (s *Store) start(f func()) {
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Done()
		f()
	})
}

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

// onPool calls f with a connection of the pool. If f fails, onPool closes the connection.
func (s *Store) onPool(ctx context.Context, f func(*sql.Conn) error) error {
	raw, err := s.connection(ctx)
	if err != nil {
		return err
	}
	if err = f(raw); err != nil {
		sqldb.Discard(raw)
	} else {
		_ = raw.Close() // a pool that is closed has closed it
	}
	return err
}

// adopt makes the monitor watch a conn. If h is not nil, the server is asked for h on the
// conn, or was, and h ends with the conn.
func (s *Store) adopt(c *conn, h *heldLock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return driver.ErrClosed
	case c.dead.Load():
		return errConnGone
	}
	s.conns[c] = struct{}{}
	if h != nil {
		h.conn = c
	}
	s.alarm.NoLaterThan(time.Now().Add(probeEvery))
	return nil
}

// disown ends what adopt began. It returns the locks and the attempts on the conn.
func (s *Store) disown(c *conn) (locks []*heldLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.main == c {
		s.main = nil
	}
	for _, h := range s.allLocked() {
		if h.conn == c {
			locks = append(locks, h)
		}
	}
	return locks
}

// lose declares a conn dead and reports the loss of its locks. The store remembers its locks
// and attempts until the server has ended the session. s.work must count the caller.
func (s *Store) lose(c *conn) {
	if c.dead.Swap(true) {
		return
	}
	c.cancel()
	locks := s.disown(c)
	s.reportLosses(locks)
	s.work.Go(c.discard)
	if len(locks) > 0 || c.placed.Load() {
		s.work.Go(func() { s.endLost(c, locks) })
	}
}

// reportLosses tells the holders of locks that end with their conn.
func (s *Store) reportLosses(locks []*heldLock) {
	var reports []func()
	s.mu.Lock()
	for _, h := range locks {
		if h.phase == held && h.lost != nil {
			reports = append(reports, h.lost)
		}
		h.phase = releasing
	}
	s.mu.Unlock()
	for _, report := range reports {
		report()
	}
}

// closeConn releases all locks on a conn and closes it, unless it was given back meanwhile.
func (s *Store) closeConn(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	err := c.enter(ctx)
	var locks []*heldLock
	if err == nil {
		defer c.leave()
		defer time.AfterFunc(callLimit, c.cancel).Stop() // the monitor has ended
		locks = s.disown(c)
		s.reportLosses(locks)
		err = c.call(func(ctx context.Context) error { return sqldb.ExecAll(ctx, c.raw, s.server.releaseAll...) })
	}
	if err == nil {
		for _, h := range locks {
			s.endLock(h, nil)
		}
		c.discard()
		return
	}
	if c.returned.Load() {
		return
	}
	s.lose(c)
	ctx, cancel = context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, _ = s.endSession(ctx, c) // or the server does when it notices that the connection is gone
}

// firstKillLimit is how long the first connection of the pool may take to end a session: it may
// have died without a sign, too. Each further one may take longer.
const firstKillLimit = time.Second

// endLost ends the session of a lost conn, and then the locks and attempts on it. Until then
// the server may hold them: it may notice hours later that a connection has died.
func (s *Store) endLost(c *conn, locks []*heldLock) {
	// Close must not interrupt it: the server may keep the locks for hours.
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	defer cancel()
	defer context.AfterFunc(s.ctx, func() { time.AfterFunc(callLimit, cancel) })()
	found, err := s.endSession(ctx, c)
	var outcome error
	switch {
	case err != nil:
		outcome = driver.ErrClosed
	case !found:
		outcome = fmt.Errorf("%w: %w", driver.ErrNotHeld, errConnGone)
	}
	for _, h := range locks {
		s.endLock(h, outcome)
	}
}

// endSession ends the session of a conn over another connection, and returns when the server
// has freed its locks. found reports whether the session still existed. If the server does
// not answer or the user lacks the right, endSession tries again until ctx ends.
func (s *Store) endSession(ctx context.Context, c *conn) (found bool, err error) {
	pause := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for limit := firstKillLimit; ; {
		exists, err := s.killSession(ctx, c, limit)
		found = found || exists
		switch {
		case err != nil:
			c.ending.Store(&err)
			limit = min(2*limit, callLimit)
		case !exists:
			return found, nil
		}
		if err := pause.Wait(ctx); err != nil {
			return found, err
		}
	}
}

// killSession asks the server once to end the session of a conn, and reports whether the
// session still exists.
func (s *Store) killSession(ctx context.Context, c *conn, limit time.Duration) (exists bool, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.onPool(limited, func(raw *sql.Conn) error {
		exists, err = s.killSessionOn(limited, raw, c)
		return err
	})
	main := s.currentConn()
	if !errors.Is(err, errPoolInUse) || main == nil {
		return exists, err
	}
	// The main conn may have the only connection of the pool.
	var stillExists bool
	err = s.use(ctx, main, func() error {
		return main.call(func(ctx context.Context) (err error) {
			stillExists, err = s.killSessionOn(ctx, main.raw, c)
			return err
		})
	})
	if err != nil { // the call may go on
		return false, err
	}
	return stillExists, nil
}

func (s *Store) killSessionOn(ctx context.Context, raw *sql.Conn, c *conn) (exists bool, err error) {
	session := strings.NewReplacer("{id}", c.id, "{fingerprint}", c.fingerprint)
	err = raw.QueryRowContext(ctx, session.Replace(s.server.findSession)).Scan(&exists)
	if err == nil && exists {
		err = sqldb.ExecAll(ctx, raw, session.Replace(s.server.killSession))
	}
	return exists, err
}
