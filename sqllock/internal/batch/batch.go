// Package batch lets calls that arrive together share one transaction, and with it the wait
// for the disk.
package batch

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/set"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// maxJobs bounds what one transaction does, and so how long it takes.
const maxJobs = 100

// Job is something to be written. It may be run again, and by another goroutine
// than that of its caller.
type Job struct {
	Name  string       // of the lock it is about; empty if there are several
	Owner driver.Owner // that may get a lock or a place; zero if none may
	Run   func(context.Context, statement.Runner) error
	// Release is what the job releases, so that it may share its statements with other releases. Then Released
	// gets the result in place of Run. Both may be nil.
	Release  *statement.Hold
	Released func(bool)
	InTx     bool // run it in a transaction, also alone
	Urgent   bool // it goes before jobs that are not

	done   chan struct{} // closed when the job has ended
	err    error
	undone bool // its batch failed and wrote nothing: its caller runs the job alone
}

// Wait blocks until a job that was abandoned has ended, and returns its error.
func (j *Job) Wait() error {
	<-j.done
	return j.err
}

// Queue holds jobs until a writer is free.
type Queue struct {
	Writing chan struct{}                     // holds an element for each writer
	Alone   func(context.Context, *Job) error // runs a job that shares its transaction with no other
	// IsBlocked reports whether other transactions blocked a job that failed alone. It may be nil. The job
	// is run again for as long as Limit, while Blocked has room for it.
	IsBlocked func(error) bool
	Limit     time.Duration
	Blocked   chan struct{}
	// BlockedNames are those of the jobs that other transactions blocked. A name that it forgets delays
	// other jobs once more.
	BlockedNames set.Set[string]
	// Batch runs jobs in one transaction. undone reports that it failed and wrote nothing.
	Batch func(jobs []*Job) (undone bool, err error)

	mu   sync.Mutex
	jobs []*Job
}

// Outcome is what became of a job.
type Outcome int

// The outcomes of a job.
const (
	Ended     Outcome = iota // it was run
	Dropped                  // the context ended before it was begun
	Abandoned                // the context ended while it goes on: what it sets must not be read
)

// Do runs a job and returns when what it wrote is durable, or the context ends.
func (q *Queue) Do(ctx context.Context, j *Job) (Outcome, error) {
	if ctx.Err() != nil { // another caller could run the job
		return Dropped, ctx.Err()
	}
	if q.BlockedNames.Has(j.Name) { // in a transaction it would block other jobs, too
		return q.runAlone(ctx, j, q.Blocked)
	}
	j.done = make(chan struct{})
	q.add(j)
	writing := q.Writing
	for {
		select {
		case <-j.done:
			if j.undone {
				return q.runAlone(ctx, j) // so that a locked row delays only jobs that need it
			}
			return Ended, j.err
		case <-ctx.Done():
			if q.drop(j) {
				return Dropped, ctx.Err()
			}
			return Abandoned, ctx.Err()
		case writing <- struct{}{}:
		}
		if ctx.Err() != nil && q.drop(j) { // the context has ended, too
			<-q.Writing
			return Dropped, ctx.Err()
		}
		switch jobs := q.take(); {
		case len(jobs) == 0: // another caller runs the job: wait for it
			<-q.Writing
			writing = nil
		case len(jobs) == 1 && jobs[0] == j:
			err := q.Alone(ctx, j)
			<-q.Writing
			return Ended, q.runWhileBlocked(ctx, j, err)
		default:
			// In a goroutine of its own, so that no caller is kept past the end of its context.
			// Rows are locked in the order of their names, so that two processes rarely
			// wait for each other.
			slices.SortStableFunc(jobs, func(a, b *Job) int { return strings.Compare(a.Name, b.Name) })
			go func() {
				undone, err := q.Batch(jobs)
				<-q.Writing
				for _, j := range jobs {
					j.err, j.undone = err, undone
					close(j.done)
				}
			}()
		}
	}
}

// runAlone runs a job alone, and again while other transactions block it.
func (q *Queue) runAlone(ctx context.Context, j *Job, limits ...chan struct{}) (Outcome, error) {
	outcome, err := q.runOnce(ctx, j, limits...)
	if outcome == Dropped {
		return outcome, err
	}
	return Ended, q.runWhileBlocked(ctx, j, err)
}

// runOnce waits for room in the limits and for a writer, and runs a job alone.
func (q *Queue) runOnce(ctx context.Context, j *Job, limits ...chan struct{}) (Outcome, error) {
	for _, limit := range append(limits, q.Writing) {
		select {
		case limit <- struct{}{}:
			defer func() { <-limit }()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return Dropped, ctx.Err()
		}
	}
	return Ended, q.Alone(ctx, j)
}

// runWhileBlocked runs a job again that failed alone with err, while other transactions block it. One such
// job runs at a time, so that the other writers are left to other jobs.
func (q *Queue) runWhileBlocked(ctx context.Context, j *Job, err error) error {
	for began := time.Now(); ; {
		blocked := err != nil && q.IsBlocked != nil && q.IsBlocked(err)
		if ctx.Err() == nil && j.Name != "" {
			q.BlockedNames.Put(j.Name, blocked)
		}
		if !blocked || time.Since(began) >= q.Limit {
			return err
		}
		outcome, failed := q.runOnce(ctx, j, q.Blocked)
		if outcome == Dropped {
			return err
		}
		err = failed
	}
}

func (q *Queue) add(j *Job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.jobs)
	if j.Urgent {
		at = 0
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
