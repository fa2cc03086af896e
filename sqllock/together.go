package sqllock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// maxTogether bounds what one transaction does, and so how long it takes.
const maxTogether = 100

// job is something to be written. It may be run again, and by another goroutine
// than the one that wants it done.
type job struct {
	name   string       // of the lock it is about; empty if there are several
	owner  driver.Owner // whom it may give a lock or a place; zero if it does not
	run    func(context.Context, runner) error
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

// drop takes j out if it has not been begun, and reports whether it did.
func (b *backlog) drop(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.jobs, j)
	if i >= 0 {
		b.jobs = slices.Delete(b.jobs, i, i+1)
	}
	return i >= 0
}

func (b *backlog) take() []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.jobs), maxTogether)
	taken := slices.Clone(b.jobs[:n])
	b.jobs = slices.Delete(b.jobs, 0, n)
	return taken
}

// together runs a job as write does, but those that wait for their turn at the
// same time share a transaction, and with it the wait for the disk. It returns
// when what was written is durable. If the context ends before, a job that was
// begun may be done all the same, and what it sets must not be read.
func (s *Store) together(ctx context.Context, op string, j *job) error {
	j.done = make(chan struct{})
	s.backlog.add(j)
	writing := s.writing
	for {
		select {
		case <-j.done:
			return s.outcome(ctx, op, j, j.err)
		case <-ctx.Done():
			if !s.backlog.drop(j) {
				s.leaveAttempt(j)
			}
			return s.fail(ctx, op, ctx.Err())
		case writing <- struct{}{}:
		}
		switch batch := s.backlog.take(); {
		case len(batch) == 0: // another one does it
			<-s.writing
			writing = nil // or there would be no end of trying where two can write
		case len(batch) == 1 && batch[0] == j:
			err := s.alone(ctx, j)
			<-s.writing
			return s.outcome(ctx, op, j, err)
		default:
			// On its own, so that nobody is kept past the end of a context.
			go func() {
				s.batch(batch)
				<-s.writing
			}()
		}
	}
}

func (s *Store) outcome(ctx context.Context, op string, j *job, err error) error {
	if err == nil {
		return nil
	}
	s.loseAttempt(j, err)
	return s.fail(ctx, op, err)
}

// alone runs a job that shares with nobody.
func (s *Store) alone(ctx context.Context, j *job) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	return s.persist(ctx, func() error {
		if j.atomic {
			return s.inTx(ctx, func(run runner) error { return j.run(ctx, run) })
		}
		return j.run(ctx, s.each())
	})
}

// batch runs jobs in one transaction. If that fails each is run again alone:
// what failed together was undone together. Rows are locked in the order of
// their names, so that two processes do not wait for each other.
func (s *Store) batch(batch []*job) {
	slices.SortStableFunc(batch, func(a, b *job) int { return strings.Compare(a.name, b.name) })
	ctx, cancel := context.WithTimeout(s.ctx, busyLimit)
	defer cancel()
	err := s.persist(ctx, func() error {
		return s.inTx(ctx, func(run runner) error {
			for _, j := range batch {
				if err := j.run(ctx, run); err != nil {
					return err
				}
			}
			return nil
		})
	})
	// What may have been done is not done again: a release would find nothing, and
	// report a loss that was none.
	_, unsure := errors.AsType[*unsureError](err)
	for _, j := range batch {
		switch {
		case unsure:
			j.err = err
		case err != nil:
			j.err = s.alone(ctx, j)
		}
		close(j.done)
	}
}
