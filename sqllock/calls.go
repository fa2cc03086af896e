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
	// busyPause is the time between two attempts, on top of the database's own busy timeout.
	busyPause = time.Millisecond
	// backgroundLimit bounds background work. If the server does not answer, it would never
	// end, and keep its connection from callers.
	backgroundLimit = 5 * time.Second
)

// background returns the context of one step of background work.
func (s *Store) background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, backgroundLimit)
}

// run runs statements each on its own.
func (s *Store) run() statement.Runner { return s.statements.On(s.db) }

// runOn is run on a connection, or on any if conn is nil.
func (s *Store) runOn(conn *sql.Conn) statement.Runner {
	if conn == nil {
		return s.run()
	}
	return s.statements.On(conn)
}

// read runs fn, which changes no lock. The number of readers is limited: a pool without a limit
// would open a connection for each of thousands of waiters.
func (s *Store) read(ctx context.Context, op string, fn func() error) error {
	return s.withConn(ctx, s.reading, nil, op, fn)
}

// withConn runs fn when limit or spare has room for it. Writers wait here for each other, because a
// database that admits one writer makes the others sleep between attempts. If other transactions block fn,
// it is tried again as batch.Queue does. The error is one of the contract.
func (s *Store) withConn(ctx context.Context, limit, spare chan struct{}, op string, fn func() error) error {
	if err := checkContext(ctx, op); err != nil {
		return err
	}
	var blocked error
	for began := time.Now(); ; {
		err := s.onConn(ctx, limit, spare, blocked != nil, fn)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && blocked != nil:
			return s.explain(ctx, op, blocked)
		case ctx.Err() != nil || !s.isRetryable(err) || time.Since(began) >= busyLimit:
			return s.explain(ctx, op, err)
		}
		blocked = err
	}
}

// onConn is withConn for one attempt.
func (s *Store) onConn(ctx context.Context, limit, spare chan struct{}, again bool, fn func() error) error {
	if again && spare == nil {
		select {
		case s.batches.Blocked <- struct{}{}:
			defer func() { <-s.batches.Blocked }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case limit <- struct{}{}:
	default:
		select {
		case limit <- struct{}{}:
		case spare <- struct{}{}:
			limit = spare
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-limit }()
	if s.closed.Load() {
		return driver.ErrClosed
	}
	return s.retryWhileBusy(ctx, fn)
}

// writeAnyway runs fn, which writes, also while the store is being closed.
func (s *Store) writeAnyway(ctx context.Context, fn func() error) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
		return s.retryWhileBusy(ctx, fn)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryWhileBusy runs fn, and for as long as blockedLimit again while other transactions block it.
func (s *Store) retryWhileBusy(ctx context.Context, fn func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	start := time.Now()
	err := fn()
	for err != nil && s.isRetryable(err) && time.Since(start) < s.dialect.blockedLimit {
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

// runJob runs a job that writes. Jobs that wait for a writer at the same time share a
// transaction. If the context ends first, a job that was begun goes on, and the caller must
// not read what it sets.
func (s *Store) runJob(ctx context.Context, op string, j *batch.Job) error {
	if err := checkContext(ctx, op); err != nil {
		return err
	}
	outcome, err := s.batches.Do(ctx, j)
	switch {
	case err == nil:
		return nil
	case j.Owner == (driver.Owner{}): // it is no attempt
	case outcome == batch.Dropped: // and all statements before it were refused
		return driver.NotSent(s.explain(ctx, op, err))
	case outcome == batch.Abandoned:
		ended := s.attempts.Leave(j.Name, j.Owner)
		go func() { ended(!s.mayHappen(j.Wait())) }()
	case outcome == batch.Ended && s.mayHappen(err):
		s.attempts.Unanswered(j.Name, j.Owner)
	}
	return s.explain(ctx, op, err)
}

// mayHappen reports whether a call that failed with err may still be carried out: the network
// delivers it late, or the server makes it wait for a row and does not notice that the
// connection is closed. See package attempts.
func (s *Store) mayHappen(err error) bool {
	switch {
	case err == nil, s.facts.Answered == nil, s.facts.Answered(err), errors.Is(err, driver.ErrClosed):
		return false
	}
	failed, ok := errors.AsType[*net.OpError](err)
	return !ok || failed.Op != "dial" // without a connection nothing is sent
}

// runAlone runs a job that shares its transaction with no other.
func (s *Store) runAlone(ctx context.Context, j *batch.Job) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	return s.retryWhileBusy(ctx, func() error {
		if j.InTx {
			return s.inTx(ctx, func(run statement.Runner) error { return j.Run(ctx, run) })
		}
		return j.Run(ctx, s.run())
	})
}

// runBatch runs jobs in one transaction. undone reports that it failed and wrote nothing. What may have
// been written is not written again: a release would find nothing, and report a loss.
func (s *Store) runBatch(jobs []*batch.Job) (undone bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, busyLimit)
	defer cancel()
	err = s.retryWhileBusy(ctx, func() error {
		return s.inTx(ctx, func(run statement.Runner) error {
			return runJobs(ctx, run, jobs)
		})
	})
	return err != nil && !isUnknown(err), err
}

// minTogether is how many releases it takes until a server is faster with a list of them.
const minTogether = 16

// runJobs runs jobs in a transaction, in the order of their names, so that deadlocks are rare. Many releases
// that follow each other share statements, whose number does not depend on theirs.
func runJobs(ctx context.Context, run statement.Runner, jobs []*batch.Job) error {
	for len(jobs) > 0 {
		var holds []*statement.Hold
		for _, j := range jobs {
			if j.Release == nil || !run.ReleasesAll() {
				break
			}
			holds = append(holds, j.Release)
		}
		n := len(holds)
		if n < minTogether {
			n = max(1, n)
			for _, j := range jobs[:n] {
				if err := j.Run(ctx, run); err != nil {
					return err
				}
			}
		} else {
			released, err := run.ReleaseAll(ctx, holds)
			if err != nil {
				return err
			}
			for _, j := range jobs[:n] {
				j.Released(released[j.Release.Key])
			}
		}
		jobs = jobs[n:]
	}
	return nil
}

// runStatement runs a statement as a job. See runAndNotify.
func (s *Store) runStatement(ctx context.Context, op, name string, id statement.ID, args ...any) (bool, error) {
	return s.runAndNotify(ctx, op, &batch.Job{Name: name}, func(ctx context.Context, run statement.Runner) (bool, error) {
		return run.Changed(ctx, id, args...)
	})
}

// runAndNotify runs a job whose function, change, reports whether it changed anything. If so, runAndNotify
// notifies the waiters for the name. If the server ended the connection and change then finds nothing to
// change, it may have changed it before.
func (s *Store) runAndNotify(ctx context.Context, op string, j *batch.Job, change func(context.Context, statement.Runner) (bool, error)) (bool, error) {
	var changed bool
	var ended error
	j.Released = func(released bool) { changed = released }
	j.Run = func(ctx context.Context, run statement.Runner) (err error) {
		if changed, err = change(ctx, run); s.facts.Classify(err).Ended {
			ended = err
		}
		return err
	}
	err := s.runJob(ctx, op, j)
	switch {
	case err != nil:
		return false, err // the job may still set changed
	case changed:
		s.waiters.notify(j.Name)
	case ended != nil:
		return false, s.explain(ctx, op, ended)
	}
	return changed, nil
}

// inTx runs fn in a transaction. All statements of fn use ctx: one that is interrupted ends the
// transaction.
func (s *Store) inTx(ctx context.Context, fn func(statement.Runner) error) error {
	return s.inTxOn(ctx, nil, fn)
}

// inTxOn is inTx on a connection, or on any if conn is nil.
func (s *Store) inTxOn(ctx context.Context, conn *sql.Conn, fn func(statement.Runner) error) error {
	return s.inUnguardedTx(ctx, conn, func(run statement.Runner) error {
		if err := run.Begin(ctx); err != nil {
			return err
		}
		return fn(run)
	})
}

// inUnguardedTx is inTx without its first statement, for creating the tables: in SQLite that statement
// needs one of them.
func (s *Store) inUnguardedTx(ctx context.Context, conn *sql.Conn, fn func(statement.Runner) error) error {
	tx, putConn, err := s.beginTx(ctx, conn)
	if err != nil {
		return err
	}
	end := func(commitOrRollback func() error) error {
		endAndPut := func() error {
			defer putConn()
			return commitOrRollback()
		}
		if !s.dialect.endIgnoresContext {
			return endAndPut()
		}
		err, left := detach.Call(ctx, detach.Go, endAndPut)
		if left != nil { // if the server does not answer, the connection is lost when TCP closes it
			return ctx.Err()
		}
		return err
	}
	if err = fn(s.statements.On(tx)); err != nil {
		_ = end(tx.Rollback) // the first error says more
		return err
	}
	err = end(tx.Commit)
	if why := s.facts.Classify(err); err != nil && (!why.Retry || why.Ended) {
		return &unknownOutcomeError{err}
	}
	return err
}

// unknownOutcomeError says that a transaction may have been committed or not.
type unknownOutcomeError struct{ error }

func (e *unknownOutcomeError) Unwrap() error { return e.error }

func isUnknown(err error) bool {
	_, unknown := errors.AsType[*unknownOutcomeError](err)
	return unknown
}

// isRetryable reports whether a call may succeed if it is run again. See runAndNotify about Ended.
func (s *Store) isRetryable(err error) bool { return !isUnknown(err) && s.facts.Classify(err).Retry }

// beginTx begins a transaction; the caller calls putConn when it has ended. If the process stops in
// the middle, the server has to end the transaction, or the rows would stay locked. Where that is a
// setting of the connection, putConn undoes it: the connection goes back to the pool of the program
// as it was, or not at all.
func (s *Store) beginTx(ctx context.Context, conn *sql.Conn) (tx *sql.Tx, putConn func(), err error) {
	guarded := s.dialect.limitIdle != ""
	if !guarded && conn == nil {
		tx, err = s.db.BeginTx(ctx, s.dialect.tx)
		return tx, func() {}, err
	}
	kept := conn != nil
	if !kept {
		if conn, err = s.db.Conn(ctx); err != nil {
			return nil, nil, err
		}
	}
	putConn = func() {
		if guarded {
			if _, err := conn.ExecContext(ctx, s.dialect.unlimitIdle); err != nil {
				_ = conn.Raw(sqldb.CloseConn)
			}
		}
		if !kept {
			_ = conn.Close() // it may be closed already
		}
	}
	if guarded {
		_, err = conn.ExecContext(ctx, s.dialect.limitIdle)
	}
	if err == nil {
		tx, err = conn.BeginTx(ctx, s.dialect.tx)
	}
	if err != nil {
		putConn()
		return nil, nil, err
	}
	return tx, putConn, nil
}
