package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
	q.Batch = func(jobs []*Job) (bool, error) {
		var names []string
		for _, j := range jobs {
			names = append(names, j.Name)
		}
		*batches = append(*batches, names)
		return false, nil
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
			go func() { _, _ = q.Do(t.Context(), &Job{Name: name}) }()
			synctest.Wait()
		}
		go func() { _, _ = q.Do(t.Context(), &Job{Name: "urgent", Urgent: true}) }()
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
		q.Batch = func([]*Job) (bool, error) {
			<-release
			return false, nil
		}
		ctx, cancel = context.WithCancel(t.Context())
		abandoned := &Job{Name: "a"}
		ended := make(chan Outcome)
		go func() {
			outcome, _ := q.Do(ctx, abandoned)
			ended <- outcome
		}()
		go func() { _, _ = q.Do(t.Context(), &Job{Name: "b"}) }()
		synctest.Wait()
		free()
		synctest.Wait()
		cancel()
		if outcome := <-ended; outcome != Abandoned {
			t.Errorf("a job that was begun: outcome %d, want %d", outcome, Abandoned)
		}
		close(release)
		if err := abandoned.Wait(); err != nil {
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
	q.Batch = func(jobs []*Job) (bool, error) {
		for _, j := range jobs {
			if j.Name == "ended" {
				ran.Add(1)
			}
		}
		return false, nil
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

// TestJobsOfAnUndoneBatchRunAlone: if a batch wrote nothing, each caller runs its job alone, with its
// own context. A job that takes long delays no other while a writer is free.
func TestJobsOfAnUndoneBatchRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{Writing: make(chan struct{}, 2)}
		q.Batch = func([]*Job) (bool, error) { return true, errors.New("the row of b is locked") }
		q.Alone = func(ctx context.Context, j *Job) error {
			if j.Name == "b" {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		for range cap(q.Writing) {
			q.Writing <- struct{}{}
		}
		ended := make(chan string, 3)
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range []string{"a", "b", "c"} {
			own := t.Context()
			if name == "b" {
				own = ctx
			}
			go func() {
				if outcome, err := q.Do(own, &Job{Name: name}); outcome != Ended || !errors.Is(err, own.Err()) {
					t.Errorf("%s: outcome %d, %v", name, outcome, err)
				}
				ended <- name
			}()
		}
		synctest.Wait()
		<-q.Writing
		<-q.Writing
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d jobs have ended while one waits, want the two others", len(ended))
		}
		cancel()
		synctest.Wait()
		if len(ended) != 3 {
			t.Error("the job whose context has ended goes on")
		}
	})
}

// TestBlockedJobsLeaveAWriter: jobs that other transactions block run one at a time from the second attempt
// on, also if they are new jobs for the same names. So another job does not wait for them.
func TestBlockedJobsLeaveAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locked := errors.New("the row is locked")
		q := &Queue{Writing: make(chan struct{}, 2), Blocked: make(chan struct{}, 1), Limit: 10 * time.Second}
		q.IsBlocked = func(err error) bool { return errors.Is(err, locked) }
		q.Alone = func(_ context.Context, j *Job) error {
			if j.Name == "other" {
				return nil
			}
			<-time.After(time.Second)
			return locked
		}
		q.Batch = func([]*Job) (bool, error) { return true, locked }
		begin := func() {
			for _, name := range []string{"a", "b", "c"} {
				go func() {
					if outcome, err := q.Do(t.Context(), &Job{Name: name}); outcome != Ended || !errors.Is(err, locked) {
						t.Errorf("%s: outcome %d, %v", name, outcome, err)
					}
				}()
				<-time.After(time.Millisecond)
			}
		}
		begin()
		<-time.After(time.Minute)
		begin() // the names are known to be blocked
		for range 10 {
			began := time.Now()
			if _, err := q.Do(t.Context(), &Job{Name: "other"}); err != nil || time.Since(began) > 0 {
				t.Errorf("a job beside jobs that are blocked took %v: %v", time.Since(began), err)
			}
			<-time.After(time.Second / 4)
		}
		<-time.After(time.Minute)
	})
}

// endsSoon is a context that has ended when it is asked for the second time.
type endsSoon struct {
	context.Context
	asked int
}

func (c *endsSoon) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

// TestJobIsDroppedBeforeItIsSent: a job whose context ends while a writer becomes free is dropped: an
// attempt that was run would have to be undone.
func TestJobIsDroppedBeforeItIsSent(t *testing.T) {
	q, free, batches := busyQueue()
	free()
	if outcome, err := q.Do(&endsSoon{Context: t.Context()}, &Job{Name: "a"}); outcome != Dropped || err == nil || len(*batches) > 0 {
		t.Errorf("outcome %d, %v, and %q were run; want %d and none", outcome, err, *batches, Dropped)
	}
}
