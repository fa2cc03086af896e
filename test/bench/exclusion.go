package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// errNotExclusive fails a run: what does not lock is not worth measuring.
var errNotExclusive = errors.New("EXCLUSION BROKEN")

// room is where only one may be at a time. Who holds the lock enters it.
type room struct {
	inside atomic.Int32
	broken atomic.Uint64
}

func (r *room) enter() {
	if r.inside.Add(1) != 1 {
		r.broken.Add(1)
	}
}

func (r *room) leave() { r.inside.Add(-1) }

func (r *room) check() error {
	if n := r.broken.Load(); n > 0 {
		return fmt.Errorf("%w: %d times somebody else was inside", errNotExclusive, n)
	}
	return nil
}

// excludes checks that two clients of a subject keep each other out, which is
// all that can be seen of exclusion where every lock has one goroutine.
func excludes(ctx context.Context, s subject, dir string) (err error) {
	const name = "bench/excludes"
	clients, err := connect(ctx, s, dir, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(clients)) }()
	first, err := clients[0].worker(ctx, name)
	if err != nil {
		return err
	}
	second, err := clients[1].worker(ctx, name)
	if err != nil {
		return err
	}
	if err := first.lock(ctx); err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := second.lock(brief); err == nil {
		return fmt.Errorf("%w: two clients have one lock", errNotExclusive)
	} else if brief.Err() == nil && !errors.Is(err, context.DeadlineExceeded) { // a connection may have run into it a moment before
		return err
	}
	if err := first.unlock(ctx); err != nil {
		return err
	}
	if err := second.lock(ctx); err != nil {
		return fmt.Errorf("a lock that was given back cannot be taken: %w", err)
	}
	return second.unlock(ctx)
}

// connect makes clients that share one state.
func connect(ctx context.Context, s subject, dir string, n int) ([]client, error) {
	open, err := s.open(dir)
	if err != nil {
		return nil, err
	}
	var clients []client
	for range n {
		c, err := open(ctx)
		if err != nil {
			return nil, errors.Join(err, closeAll(clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []client) error {
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
