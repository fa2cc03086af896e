package sqllock

import (
	"context"
	"database/sql"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// maxTogether bounds what one transaction does, and so how long it takes.
const maxTogether = 100

// prepared gives a statement to run, in a transaction or not.
type prepared func(statement) *sql.Stmt

// job is something to be written. It may be run again, and by another goroutine
// than the one that wants it done.
type job struct {
	run    func(context.Context, prepared) error
	atomic bool          // more than one statement: it needs a transaction
	urgent bool          // it goes before those that are not
	done   chan struct{} // closed when it is over
	err    error
}

// backlog is what waits for its turn to be written.
type backlog struct {
	mu   sync.Mutex
	jobs []*job
}

func (b *backlog) add(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := len(b.jobs)
	if j.urgent {
		if at = slices.IndexFunc(b.jobs, func(other *job) bool { return !other.urgent }); at < 0 {
			at = len(b.jobs)
		}
	}
	b.jobs = slices.Insert(b.jobs, at, j)
}

// drop takes j out if it has not been begun.
func (b *backlog) drop(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.jobs, j); i >= 0 {
		b.jobs = slices.Delete(b.jobs, i, i+1)
	}
}

func (b *backlog) take() []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.jobs), maxTogether)
	taken := slices.Clone(b.jobs[:n])
	b.jobs = slices.Delete(b.jobs, 0, n)
	return taken
}

// writeTogether runs a job as write does, but those that wait for their turn at
// the same time share a transaction, and with it the wait for the disk. It
// returns when what was written is durable. If the context ends before, a job
// that was begun may be done all the same, and what it sets must not be read.
func (s *Store) writeTogether(ctx context.Context, op string, run func(context.Context, prepared) error) error {
	return s.together(ctx, op, &job{run: run})
}

func (s *Store) together(ctx context.Context, op string, j *job) error {
	j.done = make(chan struct{})
	s.backlog.add(j)
	for {
		select {
		case <-j.done:
			return s.outcome(ctx, op, j.err)
		case <-ctx.Done():
			s.backlog.drop(j)
			return s.fail(ctx, op, ctx.Err())
		case s.writing <- struct{}{}:
		}
		switch batch := s.backlog.take(); {
		case len(batch) == 0: // another one did it
			<-s.writing
		case len(batch) == 1 && batch[0] == j:
			err := s.alone(ctx, j)
			<-s.writing
			return s.outcome(ctx, op, err)
		default:
			// On its own, so that nobody is kept past the end of a context.
			go func() {
				s.batch(batch)
				<-s.writing
			}()
		}
	}
}

func (s *Store) outcome(ctx context.Context, op string, err error) error {
	if err != nil {
		return s.fail(ctx, op, err)
	}
	return nil
}

// alone runs a job that shares with nobody.
func (s *Store) alone(ctx context.Context, j *job) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	return s.persist(ctx, func() error {
		if j.atomic {
			return s.inTx(ctx, func(tx *sql.Tx) error { return j.run(ctx, s.preparedIn(ctx, tx)) })
		}
		return j.run(ctx, func(stmt statement) *sql.Stmt { return s.stmts[stmt] })
	})
}

func (s *Store) preparedIn(ctx context.Context, tx *sql.Tx) prepared {
	return func(stmt statement) *sql.Stmt { return tx.StmtContext(ctx, s.stmts[stmt]) }
}

// batch runs jobs in one transaction. If that fails each is run again alone:
// what failed together was undone together.
func (s *Store) batch(batch []*job) {
	err := s.persist(s.ctx, func() error {
		return s.inTx(s.ctx, func(tx *sql.Tx) error {
			use := s.preparedIn(s.ctx, tx)
			for _, j := range batch {
				if err := j.run(s.ctx, use); err != nil {
					return err
				}
			}
			return nil
		})
	})
	for _, j := range batch {
		if err != nil {
			j.err = s.alone(s.ctx, j)
		}
		close(j.done)
	}
}
