package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// errNotExclusive fails a run: a subject that does not lock is not worth
// measuring.
var errNotExclusive = errors.New("EXCLUSION BROKEN")

// occupancy counts the goroutines between enter and leave. The holder of the lock
// enters.
type occupancy struct {
	inside atomic.Int32
	broken atomic.Uint64
}

func (r *occupancy) enter() {
	if r.inside.Add(1) != 1 {
		r.broken.Add(1)
	}
}

func (r *occupancy) leave() { r.inside.Add(-1) }

func (r *occupancy) check() error {
	if n := r.broken.Load(); n > 0 {
		return fmt.Errorf("%w: %d times there was a second holder", errNotExclusive, n)
	}
	return nil
}

// excludes checks that two clients of a subject exclude each other. It is the
// only check of exclusion in cases in which every goroutine has a lock of its
// own.
func (r round) excludes(ctx context.Context) (err error) {
	var workers [2]subjects.Worker
	for i := range workers {
		c, openErr := r.subject.Open(ctx, r.place)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		if workers[i], err = c.Worker(ctx, subjects.Want{Name: "bench/excludes"}); err != nil {
			return err
		}
	}
	if err := workers[0].Lock(ctx); err != nil {
		return err
	}
	second := make(chan error, 1)
	go func() { second <- workers[1].Lock(ctx) }()
	select {
	case err := <-second:
		return cmp.Or(err, fmt.Errorf("%w: two clients hold one lock", errNotExclusive))
	case <-time.After(10 * time.Millisecond):
	}
	if err := workers[0].Unlock(ctx); err != nil {
		return err
	}
	select {
	case err := <-second:
		if err != nil {
			return fmt.Errorf("a released lock cannot be acquired: %w", err)
		}
		return workers[1].Unlock(ctx)
	case <-ctx.Done():
		return fmt.Errorf("a released lock cannot be acquired: %w", context.Cause(ctx))
	}
}
