package main

import (
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
func excludes(ctx context.Context, s subjects.Subject, dir string) (err error) {
	const name = "bench/excludes"
	clients, err := connect(ctx, s, dir, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(clients)) }()
	first, err := clients[0].Worker(ctx, name)
	if err != nil {
		return err
	}
	second, err := clients[1].Worker(ctx, name)
	if err != nil {
		return err
	}
	if err := first.Lock(ctx); err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := second.Lock(brief); err == nil {
		return fmt.Errorf("%w: two clients hold one lock", errNotExclusive)
	} else if brief.Err() == nil && !errors.Is(err, context.DeadlineExceeded) { // a connection may have reached the deadline a moment earlier
		return err
	}
	if err := first.Unlock(ctx); err != nil {
		return err
	}
	if err := second.Lock(ctx); err != nil {
		return fmt.Errorf("a released lock cannot be acquired: %w", err)
	}
	return second.Unlock(ctx)
}

// connect returns clients that share one state.
func connect(ctx context.Context, s subjects.Subject, dir string, n int) ([]subjects.Client, error) {
	open, err := s.Open(dir)
	if err != nil {
		return nil, err
	}
	var clients []subjects.Client
	for range n {
		c, err := open(ctx)
		if err != nil {
			return nil, errors.Join(err, closeAll(clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []subjects.Client) error {
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
