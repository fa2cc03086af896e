package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// busyQueue returns a queue with one writer that is in use until free is called, and the
// batches that it ran.
func busyQueue() (q *Queue, free func(), batches *[][]string) {
	batches = &[][]string{}
	q = &Queue{Writing: make(chan struct{}, 1)}
	q.Alone = func(_ context.Context, j *Job) error {
		*batches = append(*batches, []string{j.Name})
		return nil
	}
	q.Together = func(jobs []*Job) {
		var names []string
		for _, j := range jobs {
			names = append(names, j.Name)
			j.End(nil)
		}
		*batches = append(*batches, names)
	}
	q.Writing <- struct{}{}
	return q, func() { <-q.Writing }, batches
}

// TestJobsThatWaitAreRunTogether: jobs share a batch in the order of their names, and a
// batch takes urgent jobs first.
func TestJobsThatWaitAreRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, free, batches := busyQueue()
		for _, name := range []string{"c", "a", "b"} {
			go q.Do(t.Context(), &Job{Name: name})
			synctest.Wait()
		}
		go q.Do(t.Context(), &Job{Name: "urgent", Urgent: true})
		synctest.Wait()
		if first := q.jobs[0].Name; first != "urgent" {
			t.Errorf("the first job is %q, want the urgent one", first)
		}
		free()
		synctest.Wait()
		if len(*batches) != 1 || !slices.Equal((*batches)[0], []string{"a", "b", "c", "urgent"}) {
			t.Errorf("the batches are %q, want one of all jobs in the order of their names", *batches)
		}
	})
}

// TestCallerLeaves: a job that was not begun is dropped, and a job that was begun goes on.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, free, _ := busyQueue()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if outcome, err := q.Do(ctx, &Job{Name: "a"}); outcome != Dropped || !errors.Is(err, context.Canceled) {
			t.Errorf("a job that was not begun: outcome %d, %v", outcome, err)
		}
		release := make(chan struct{})
		q.Together = func(jobs []*Job) {
			<-release
			for _, j := range jobs {
				j.End(nil)
			}
		}
		ctx, cancel = context.WithCancel(t.Context())
		left := &Job{Name: "a"}
		ended := make(chan Outcome)
		go func() {
			outcome, _ := q.Do(ctx, left)
			ended <- outcome
		}()
		go q.Do(t.Context(), &Job{Name: "b"})
		synctest.Wait()
		free()
		synctest.Wait()
		cancel()
		if outcome := <-ended; outcome != Left {
			t.Errorf("a job that was begun: outcome %d, want %d", outcome, Left)
		}
		close(release)
		if err := left.Wait(); err != nil {
			t.Errorf("the job ended with %v", err)
		}
	})
}

// TestEndedContextRunsNothing: a job whose context has ended before the call is not run, also
// not by another caller that collects jobs at that moment.
func TestEndedContextRunsNothing(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var ran atomic.Int64
	q := &Queue{Writing: make(chan struct{}, 1)}
	q.Alone = func(context.Context, *Job) error { return nil }
	q.Together = func(jobs []*Job) {
		for _, j := range jobs {
			if j.Name == "ended" {
				ran.Add(1)
			}
			j.End(nil)
		}
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 5000 {
				_, _ = q.Do(t.Context(), &Job{Name: "live"})
			}
		})
		callers.Go(func() {
			for range 5000 {
				_, _ = q.Do(ended, &Job{Name: "ended"})
			}
		})
	}
	callers.Wait()
	if n := ran.Load(); n != 0 {
		t.Errorf("%d of 20,000 jobs ran although their context had ended before", n)
	}
}
