// Package batch lets calls that arrive together share one transaction, and with it the wait
// for the disk.
package batch

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// maxJobs bounds what one transaction does, and so how long it takes.
const maxJobs = 100

// Job is something to be written. It may be run again, and by another goroutine
// than that of its caller.
type Job struct {
	Name   string       // of the lock it is about; empty if there are several
	Owner  driver.Owner // that may get a lock or a place; zero if none may
	Run    func(context.Context, statement.Runner) error
	Atomic bool // more than one statement: it needs a transaction
	Urgent bool // it goes before jobs that are not

	done chan struct{} // closed when the job has ended
	err  error
}

// Wait blocks until a job that was left has ended, and returns its error.
func (j *Job) Wait() error {
	<-j.done
	return j.err
}

// Queue holds jobs until a writer is free.
type Queue struct {
	Writing  chan struct{}                     // holds an element for each writer
	Alone    func(context.Context, *Job) error // runs a job that shares its transaction with no other
	Together func(batch []*Job)                // runs jobs in one transaction, and calls End for each

	mu   sync.Mutex
	jobs []*Job
}

// Outcome is what became of a job.
type Outcome int

// The outcomes of a job.
const (
	Ended   Outcome = iota // it was run
	Dropped                // the context ended before it was begun
	Left                   // the context ended while it goes on: what it sets must not be read
)

// Do runs a job and returns when what it wrote is durable, or the context ends.
func (q *Queue) Do(ctx context.Context, j *Job) (Outcome, error) {
	if ctx.Err() != nil { // another caller could run the job
		return Dropped, ctx.Err()
	}
	j.done = make(chan struct{})
	q.add(j)
	writing := q.Writing
	for {
		select {
		case <-j.done:
			return Ended, j.err
		case <-ctx.Done():
			if q.drop(j) {
				return Dropped, ctx.Err()
			}
			return Left, ctx.Err()
		case writing <- struct{}{}:
		}
		switch batch := q.take(); {
		case len(batch) == 0: // another caller runs the job
			<-q.Writing
			writing = nil // with two writers this loop would try without end
		case len(batch) == 1 && batch[0] == j:
			err := q.Alone(ctx, j)
			<-q.Writing
			return Ended, err
		default:
			// In a goroutine of its own, so that no caller is kept past the end of its context.
			// Rows are locked in the order of their names, so that two processes do not
			// wait for each other.
			slices.SortStableFunc(batch, func(a, b *Job) int { return strings.Compare(a.Name, b.Name) })
			go func() {
				q.Together(batch)
				<-q.Writing
			}()
		}
	}
}

// End ends a job of a batch.
func (j *Job) End(err error) {
	j.err = err
	close(j.done)
}

func (q *Queue) add(j *Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.jobs)
	if j.Urgent {
		if first := slices.IndexFunc(q.jobs, func(other *Job) bool { return !other.Urgent }); first >= 0 {
			at = first
		}
	}
	q.jobs = slices.Insert(q.jobs, at, j)
}

// drop removes j if it has not been begun, and reports whether it did.
func (q *Queue) drop(j *Job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.jobs, j)
	if i >= 0 {
		q.jobs = slices.Delete(q.jobs, i, i+1)
	}
	return i >= 0
}

func (q *Queue) take() []*Job {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.jobs), maxJobs)
	taken := slices.Clone(q.jobs[:n])
	q.jobs = slices.Delete(q.jobs, 0, n)
	return taken
}
