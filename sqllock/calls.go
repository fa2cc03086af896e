package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

const (
	// busyLimit is how long a call tries a database that is locked.
	busyLimit = 10 * time.Second
	// busyPause is between two attempts, on top of the database's own busy timeout.
	busyPause = time.Millisecond
	// backgroundLimit bounds background work. Over a connection that died in silence it
	// would never end, and keep its slot from callers.
	backgroundLimit = 5 * time.Second
)

// background returns the context of one step of background work.
func (s *Store) background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, backgroundLimit)
}

// run runs statements each on its own.
func (s *Store) run() statement.Runner { return s.statements.On(s.db) }

// read runs fn, which reads. The number of readers is limited: a pool without a limit
// would open a connection for each of thousands of waiters.
func (s *Store) read(ctx context.Context, op string, fn func() error) error {
	return s.inSlot(ctx, s.reading, op, fn)
}

// inSlot runs fn when one of the slots is free. Writers wait here for each other, because a
// database that admits one writer makes the others sleep between attempts.
func (s *Store) inSlot(ctx context.Context, slots chan struct{}, op string, fn func() error) error {
	if err := ended(ctx, op); err != nil {
		return err
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return s.runExplained(ctx, op, fn)
	case <-ctx.Done():
		return s.explain(ctx, op, ctx.Err())
	}
}

// writeAnyway runs fn, which writes, also while the store is being closed.
func (s *Store) writeAnyway(ctx context.Context, fn func() error) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
		return s.persist(ctx, fn)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runExplained runs fn. Its error is one of the contract.
func (s *Store) runExplained(ctx context.Context, op string, fn func() error) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := s.persist(ctx, fn); err != nil {
		return s.explain(ctx, op, err)
	}
	return nil
}

// persist runs fn again while it fails because of other transactions.
func (s *Store) persist(ctx context.Context, fn func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := fn()
	for start := time.Now(); err != nil && s.isRetryable(err) && time.Since(start) < busyLimit; {
		reason := err
		s.busy.Store(&reason)
		if backoff.Sleep(ctx, busyPause+rand.N(busyPause)) != nil {
			return err
		}
		err = fn()
	}
	if err == nil && s.busy.Load() != nil {
		s.busy.Store(nil)
	}
	return err
}

// do runs a job that writes. Jobs that wait for a writer at the same time share a
// transaction. If the context ends first, a job that was begun goes on, and the caller must
// not read what it sets.
func (s *Store) do(ctx context.Context, op string, j *batch.Job) error {
	if err := ended(ctx, op); err != nil {
		return err
	}
	outcome, err := s.batches.Do(ctx, j)
	switch {
	case err == nil:
		return nil
	case j.Owner == (driver.Owner{}): // it is no attempt
	case outcome == batch.Left:
		ended := s.attempts.Leave(j.Name, j.Owner)
		go func() { ended(!s.mayHappen(j.Wait())) }()
	case outcome == batch.Ended && s.mayHappen(err):
		s.attempts.Unanswered(j.Name, j.Owner)
	}
	return s.explain(ctx, op, err)
}

// mayHappen reports whether a call that failed with err may still be carried out: the network
// delivers it late, or the server makes it wait for a row and does not notice that the
// connection is closed. A Release that follows would find nothing, and the lock would stay
// for its whole TTL. So such attempts are recorded; see package attempts.
func (s *Store) mayHappen(err error) bool {
	switch {
	case err == nil, s.facts.Answered == nil, s.facts.Answered(err), errors.Is(err, driver.ErrClosed):
		return false
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return !ok || failed.Op != "dial" // without a connection nothing is sent
}

// alone runs a job that shares its transaction with no other.
func (s *Store) alone(ctx context.Context, j *batch.Job) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	return s.persist(ctx, func() error {
		if j.Atomic {
			return s.inTx(ctx, func(run statement.Runner) error { return j.Run(ctx, run) })
		}
		return j.Run(ctx, s.run())
	})
}

// together runs jobs in one transaction. If that fails, it runs each again alone.
func (s *Store) together(jobs []*batch.Job) {
	ctx, cancel := context.WithTimeout(s.ctx, busyLimit)
	defer cancel()
	err := s.persist(ctx, func() error {
		return s.inTx(ctx, func(run statement.Runner) error {
			for _, j := range jobs {
				if err := j.Run(ctx, run); err != nil {
					return err
				}
			}
			return nil
		})
	})
	// What may have been done is not done again: a release would find nothing, and
	// report a loss that did not happen.
	for _, j := range jobs {
		outcome := err
		if err != nil && !isUnsure(err) {
			outcome = s.alone(ctx, j)
		}
		j.End(outcome)
	}
}

// change runs a statement as a job, and reports whether it changed anything.
func (s *Store) change(ctx context.Context, op string, j *batch.Job, id statement.ID, args ...any) (bool, error) {
	var changed bool
	j.Run = func(ctx context.Context, run statement.Runner) (err error) {
		changed, err = run.Changed(ctx, id, args...)
		return err
	}
	if err := s.do(ctx, op, j); err != nil {
		return false, err // the job may still set changed
	}
	return changed, nil
}

// inTx runs fn in a transaction. With SQLite fn starts with a statement that
// writes, which takes the write lock at once whatever kind of transaction the
// driver begins. All statements use the context of the transaction: one that is
// interrupted ends it, and none may run after it.
func (s *Store) inTx(ctx context.Context, fn func(statement.Runner) error) error {
	tx, release, err := s.beginTx(ctx)
	if err != nil {
		return err
	}
	finish := func(end func() error) error {
		return s.finish(ctx, func() error {
			defer release()
			return end()
		})
	}
	if s.dialect.begin != "" {
		_, err = tx.ExecContext(ctx, s.dialect.begin)
	}
	if err == nil {
		err = fn(s.statements.In(tx))
	}
	if err != nil {
		_ = finish(tx.Rollback) // the first error says more
		return err
	}
	err = finish(tx.Commit)
	if why := s.facts.Classify(err); err != nil && (!why.Retry || why.Ended) {
		return &unsureError{err}
	}
	return err
}

// finish ends a transaction. If the driver ignores the context here and the server is
// silent, the caller leaves, and the connection is lost when TCP gives it up.
func (s *Store) finish(ctx context.Context, end func() error) error {
	if !s.dialect.ignoresContext {
		return end()
	}
	err, left := detach.Call(ctx, detach.Go, end)
	if left != nil {
		return ctx.Err()
	}
	return err
}

// unsureError says that a transaction may have been committed or not.
type unsureError struct{ error }

func (e *unsureError) Unwrap() error { return e.error }

func isUnsure(err error) bool {
	_, unsure := errors.AsType[*unsureError](err)
	return unsure
}

// isRetryable reports whether a call failed because of other transactions, and has changed
// nothing.
func (s *Store) isRetryable(err error) bool { return !isUnsure(err) && s.facts.Classify(err).Retry }

// beginTx begins a transaction; the caller calls release when it has ended.
//
// The server has to end a transaction whose process vanishes or is stopped in the middle, or
// the rows would stay locked for as long as the server waits for its clients. Where
// that is a setting of the connection, it is lifted after the transaction. The connection
// is the program's own, so it goes back to the pool as it was, or not at all.
func (s *Store) beginTx(ctx context.Context) (tx *sql.Tx, release func(), err error) {
	if s.dialect.limitIdle == "" {
		tx, err = s.db.BeginTx(ctx, s.dialect.tx)
		return tx, func() {}, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		if _, err := conn.ExecContext(ctx, s.dialect.unlimitIdle); err != nil {
			_ = conn.Raw(sqldb.CloseConn)
		}
		_ = conn.Close() // it may be closed already
	}
	if _, err = conn.ExecContext(ctx, s.dialect.limitIdle); err == nil {
		tx, err = conn.BeginTx(ctx, s.dialect.tx)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return tx, release, nil
}
